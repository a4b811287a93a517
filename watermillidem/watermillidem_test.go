package watermillidem_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/watermillidem"
)

// charge is a consumer outside of a Router.
func charge(p core.TaskPolicy) watermillidem.Config {
	p.Name = "charge"
	return watermillidem.Config{Policy: p, Pause: -1}
}

func nothing(*message.Message) ([]*message.Message, error) { return nil, nil }

func TestFaults(t *testing.T) {
	e := core.MustNew(core.Config{})
	for name, c := range map[string]struct {
		policy core.TaskPolicy
		fields []string
	}{
		"of a task":       {core.TaskPolicy{Record: core.Record{Lease: -1}, ResultLimit: -1}, []string{"TaskPolicy.ResultLimit", "TaskPolicy.Lease"}},
		"a message lost":  {core.TaskPolicy{Duplicate: core.Reject(""), Record: core.Record{OnFailure: core.Keep}}, []string{"TaskPolicy.OnFailure"}},
		"both":            {core.TaskPolicy{Duplicate: core.Reject(""), Record: core.Record{OnFailure: core.Keep, Retention: -1}}, []string{"TaskPolicy.Retention", "TaskPolicy.OnFailure"}},
		"kept and shown":  {core.TaskPolicy{Record: core.Record{OnFailure: core.Keep}}, nil},
		"the zero policy": {core.TaskPolicy{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := watermillidem.New(e, watermillidem.Config{Policy: c.policy})
			if c.fields == nil {
				require.NoError(t, err)
				assert.NotNil(t, m)
				assert.NotPanics(t, func() { watermillidem.MustNew(e, watermillidem.Config{Policy: c.policy}) })
				return
			}
			assert.Nil(t, m)
			for _, field := range c.fields {
				assert.ErrorContains(t, err, field)
			}
			fault, ok := errors.AsType[*core.ConfigError](err)
			require.True(t, ok)
			assert.Equal(t, c.fields[0], fault.Field)
			assert.Panics(t, func() { watermillidem.MustNew(e, watermillidem.Config{Policy: c.policy}) })
		})
	}
}

// Without a Router there is no name of a handler.
func TestNoName(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	handle := watermillidem.MustNew(e.Engine, watermillidem.Config{})(nothing)
	_, err := handle(order("1", "5"))
	assert.ErrorContains(t, err, "Policy.Name")
	assert.False(t, watermillidem.Permanent(err))
	assert.Empty(t, e.Events())
}

// What is refused for the time being is held, so that it does not go round and round.
func TestPause(t *testing.T) {
	for name, c := range map[string]struct {
		pause, held time.Duration
	}{"default": {0, time.Second}, "own": {time.Minute, time.Minute}, "none": {-1, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := idemtest.New(t, core.Config{})
				config := charge(core.TaskPolicy{})
				config.Pause = c.pause
				handle := watermillidem.MustNew(e.Engine, config)(nothing)

				e.NextIsRunning(time.Hour)
				start := time.Now()
				_, err := handle(order("1", "5"))
				require.ErrorIs(t, err, codes.InProgress)
				assert.Equal(t, c.held, time.Since(start))

				e.Fail(idemtest.Acquire)
				start = time.Now()
				_, err = handle(order("2", "5"))
				require.ErrorIs(t, err, codes.StoreUnavailable)
				assert.Equal(t, c.held, time.Since(start))

				e.Fail()
				start = time.Now()
				_, err = handle(order("", "5"))
				require.ErrorIs(t, err, codes.KeyMissing)
				_, err = handle(order("3", "5"))
				require.NoError(t, err)
				assert.Zero(t, time.Since(start), "what is permanent, or has run, is not held")
			})
		})
	}
}

// The subscriber is closed, or the broker waits no longer.
func TestPauseEndsWithTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := idemtest.New(t, core.Config{})
		config := charge(core.TaskPolicy{})
		config.Pause = time.Hour
		handle := watermillidem.MustNew(e.Engine, config)(nothing)
		e.NextIsRunning(2 * time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := handle(message.NewMessageWithContext(ctx, "1", nil))
		assert.ErrorIs(t, err, codes.InProgress)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

type tenant struct{}

// The handler's message has the run's context, and afterwards its own again.
func TestContext(t *testing.T) {
	own := context.WithValue(t.Context(), tenant{}, "t1")
	for name, end := range map[string]func() error{
		"success": func() error { return nil },
		"failure": func() error { return errCard },
		"panic":   func() error { panic("a bug") },
	} {
		t.Run(name, func(t *testing.T) {
			e := idemtest.New(t, core.Config{})
			var inside context.Context
			handle := middleware.Recoverer(watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{}))(
				func(msg *message.Message) ([]*message.Message, error) {
					inside = msg.Context()
					assert.NoError(t, inside.Err())
					return nil, end()
				}))
			msg := message.NewMessageWithContext(own, "1", nil)
			_, err := handle(msg)
			assert.Equal(t, name == "success", err == nil)
			assert.Equal(t, "t1", inside.Value(tenant{}))
			assert.EqualValues(t, 1, core.RunFrom(inside).Attempt())
			assert.Contains(t, core.RunFrom(inside).Key().Raw(), "M=DO%20chargeK=1")
			assert.Error(t, inside.Err(), "the run has ended")
			assert.Equal(t, own, msg.Context())
		})
	}
}

// Publishers obey the contexts of messages, and publish when the run has ended.
func TestProducedMessagesOutliveTheRun(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	ended, end := context.WithCancel(t.Context())
	end()
	handle := watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{}))(
		func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{
				msg,
				message.NewMessageWithContext(context.WithValue(msg.Context(), tenant{}, "t1"), "2", nil),
				message.NewMessageWithContext(ended, "3", nil),
			}, nil
		})
	produced, err := handle(message.NewMessageWithContext(t.Context(), "1", nil))
	require.NoError(t, err)
	assert.Equal(t, t.Context(), produced[0].Context())
	assert.NoError(t, produced[1].Context().Err())
	assert.Equal(t, "t1", produced[1].Context().Value(tenant{}))
	assert.Equal(t, ended, produced[2].Context(), "it is the handler's own")
}

func TestKeys(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	config := charge(core.TaskPolicy{})
	config.Key = middleware.NewMessageHasherFromMetadataField("order")
	runs := 0
	handle := watermillidem.MustNew(e.Engine, config)(func(*message.Message) ([]*message.Message, error) { runs++; return nil, nil })
	send := func(uuid, id string) error {
		m := message.NewMessage(uuid, []byte("5"))
		if id != "none" {
			m.Metadata.Set("order", id)
		}
		_, err := handle(m)
		return err
	}
	require.NoError(t, send("1", "o-1"))
	require.NoError(t, send("2", "o-1"))
	assert.Equal(t, 1, runs)
	require.NoError(t, send("2", "o-2"))
	assert.Equal(t, 2, runs)

	err := send("3", "none")
	assert.ErrorIs(t, err, codes.KeyInvalid)
	assert.ErrorContains(t, err, "cannot recover hash value")
	assert.True(t, watermillidem.Permanent(err))
	err = send("3", "")
	assert.ErrorIs(t, err, codes.KeyMissing)
	assert.True(t, watermillidem.Permanent(err))
	assert.Equal(t, 2, runs)
}

func TestFingerprint(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	config := func(names ...string) watermillidem.Config {
		c := charge(core.TaskPolicy{})
		c.Metadata = names
		return c
	}
	sent := 0
	// same reports whether two messages of one UUID are taken for the same.
	same := func(first, second watermillidem.Config, payloads [2]string, metadata [2]message.Metadata) bool {
		sent++
		var err error
		for i, c := range []watermillidem.Config{first, second} {
			m := message.NewMessage(fmt.Sprint(sent), []byte(payloads[i]))
			m.Metadata = metadata[i]
			if _, err = watermillidem.MustNew(e.Engine, c)(nothing)(m); i == 0 {
				require.NoError(t, err)
			}
		}
		if err != nil {
			assert.ErrorIs(t, err, codes.KeyReused)
		}
		return err == nil
	}
	type md = message.Metadata
	equal := [2]string{"5", "5"}
	none := config()
	both := config("a", "b")
	assert.True(t, same(none, none, equal, [2]md{{"a": "1"}, {"a": "2"}}), "metadata count if they are named")
	assert.False(t, same(none, none, [2]string{"5", "6"}, [2]md{}))
	assert.False(t, same(none, none, [2]string{"5", ""}, [2]md{}))
	assert.True(t, same(both, both, equal, [2]md{{"a": "1", "c": "1"}, {"a": "1", "c": "2"}}))
	assert.False(t, same(both, both, equal, [2]md{{"a": "1"}, {"a": "2"}}))
	assert.False(t, same(both, both, [2]string{"5", "6"}, [2]md{{"a": "1"}, {"a": "1"}}))
	assert.True(t, same(both, both, equal, [2]md{{"a": "1", "b": ""}, {"a": "1"}}))
	assert.False(t, same(both, both, equal, [2]md{{"a": "1"}, {"b": "1"}}))
	assert.False(t, same(both, both, equal, [2]md{{"a": "1b", "b": "2"}, {"a": "1", "b": "b2"}}))
	names := []string{"b", "a"}
	assert.True(t, same(both, config(names...), equal, [2]md{{"a": "1", "b": "2"}, {"a": "1", "b": "2"}}), "their order does not")
	assert.Equal(t, []string{"b", "a"}, names, "the caller's stay as they are")
	assert.False(t, same(config("a"), config("b"), equal, [2]md{{"a": "1"}, {"b": "1"}}), "their names do")

	anything := charge(core.TaskPolicy{IgnoreFingerprint: true})
	assert.True(t, same(anything, anything, [2]string{"5", "6"}, [2]md{}))
}

// The handler's result goes out as it is, stored or not; a duplicate gets equal messages, or none.
func TestProduced(t *testing.T) {
	bare := message.NewMessage("1", nil)
	bare.Metadata = nil
	foreign := message.NewMessage("1", nil)
	foreign.Metadata["latin1"] = "caf\xe9"
	name := message.NewMessage("1", nil)
	name.Metadata["caf\xe9"] = "latin1"
	uuid := message.NewMessage("caf\xe9", nil)
	uuid.Metadata["utf8"] = "café"
	for _, c := range []struct {
		name     string
		produced []*message.Message
		stored   bool
	}{
		{"nothing", nil, true},
		{"an empty message", []*message.Message{bare}, true},
		{"two", []*message.Message{receipt(bare, "a"), receipt(bare, "b")}, true},
		{"foreign metadata", []*message.Message{foreign}, false},
		{"foreign name", []*message.Message{name}, false},
		{"foreign UUID", []*message.Message{uuid}, false},
		{"nil", []*message.Message{nil}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := idemtest.New(t, core.Config{})
			handle := watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{}))(
				func(*message.Message) ([]*message.Message, error) { return c.produced, nil })
			produced, err := handle(order("1", "5"))
			require.NoError(t, err)
			assert.Equal(t, c.produced, produced)

			again, err := handle(order("1", "5"))
			e.WantRuns("DO charge", 1)
			if !c.stored {
				assert.ErrorIs(t, err, codes.ResultUnavailable)
				assert.True(t, watermillidem.Permanent(err))
				return
			}
			require.NoError(t, err)
			require.Len(t, again, len(produced))
			for i, m := range again {
				assert.True(t, m.Equals(produced[i]))
				assert.NotNil(t, m.Acked(), "it is a whole message")
				assert.NotNil(t, m.Nacked())
				m.Metadata.Set("correlation_id", "c") // middleware further out may
			}
		})
	}
}

// Of a record that is no list of messages nothing is acknowledged: what was produced would be lost.
func TestRecordOfAnotherForm(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	_, err := core.Do(t.Context(), e.MustTask(core.TaskPolicy{Name: "charge"}), core.Call{Key: "1"},
		func(context.Context) (string, error) { return "paid", nil })
	require.NoError(t, err)
	handle := watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{IgnoreFingerprint: true}))(nothing)
	_, err = handle(order("1", "5"))
	assert.ErrorIs(t, err, codes.ResultUnavailable)
}

// Under Reject a duplicate is acknowledged, and is no affair of a poison queue.
func TestReject(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	handle := watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{Duplicate: core.Reject("")}))(
		func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{receipt(msg, "paid")}, nil
		})
	produced, err := handle(order("1", "5"))
	require.NoError(t, err)
	assert.Len(t, produced, 1)
	produced, err = handle(order("1", "5"))
	require.NoError(t, err)
	assert.Empty(t, produced)
	e.WantRuns("DO charge", 1)
}

// What a failing handler produces goes out with its error, as without this middleware.
func TestProducedByAFailure(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	handle := watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{}))(
		func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{receipt(msg, "declined")}, errCard
		})
	produced, err := handle(order("1", "5"))
	assert.Equal(t, errCard, err)
	assert.Len(t, produced, 1)
}

func TestFinished(t *testing.T) {
	for name, finished := range map[string][]*message.Message{
		"nothing": nil, "a receipt": {receipt(order("1", "5"), "paid")},
	} {
		t.Run(name, func(t *testing.T) {
			e := idemtest.New(t, core.Config{})
			handle := watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{Record: core.Record{
				Abandoned: core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
					return watermillidem.Finished(finished...)
				}),
			}}))(nothing)
			e.NextIsAbandoned(1)
			produced, err := handle(order("1", "5"))
			require.NoError(t, err)
			require.Len(t, produced, len(finished))
			for i, m := range produced {
				assert.True(t, m.Equals(finished[i]))
			}
			e.WantRuns("DO charge", 0)
		})
	}
	_, err := watermillidem.Finished(nil, nil)
	assert.ErrorContains(t, err, "nil message")
}

// A refusal of a handler's own is the handler's error, and says nothing about its message.
func TestPermanentAndTemporary(t *testing.T) {
	refused := func(code codes.Code) error {
		return fmt.Errorf("wrapped: %w", &watermillidem.RefusedError{Refusal: core.NewRefusal(code, errCard)})
	}
	for _, code := range []codes.Code{codes.Uncertain, codes.KeyReused, codes.KeyMissing, codes.KeyInvalid,
		codes.ResultUnavailable, codes.GuardConflict} {
		assert.True(t, watermillidem.Permanent(refused(code)), code)
		assert.False(t, watermillidem.Temporary(refused(code)), code)
	}
	for _, code := range []codes.Code{codes.InProgress, codes.StoreUnavailable, codes.ShuttingDown} {
		assert.False(t, watermillidem.Permanent(refused(code)), code)
		assert.True(t, watermillidem.Temporary(refused(code)), code)
	}
	for _, err := range []error{nil, errCard, core.NewRefusal(codes.KeyReused, nil), core.NewRefusal(codes.InProgress, nil)} {
		assert.False(t, watermillidem.Permanent(err))
		assert.False(t, watermillidem.Temporary(err))
	}
	assert.ErrorIs(t, refused(codes.KeyReused), codes.KeyReused)
	assert.ErrorIs(t, refused(codes.KeyReused), errCard)

	e := idemtest.New(t, core.Config{})
	other := e.MustTask(core.TaskPolicy{Name: "other"})
	handle := watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{}))(
		func(msg *message.Message) ([]*message.Message, error) {
			_, err := core.Do(msg.Context(), other, core.Call{}, func(context.Context) (int, error) { return 0, nil })
			return nil, err
		})
	_, err := handle(order("1", "5"))
	assert.ErrorIs(t, err, codes.KeyMissing)
	assert.False(t, watermillidem.Permanent(err))
}

// Who compiles the package compiles no broker, and nothing that is for tests.
func TestBoundary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/idem-go/idem/watermillidem").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "github.com/ThreeDotsLabs/watermill/message\n")
	for _, bad := range []string{"watermill-", "nats-io", "rabbitmq", "testify", "idem/internal", "idem/idemtest", "idem/httpidem"} {
		for dep := range strings.FieldsSeq(string(out)) {
			assert.NotContains(t, dep, bad)
		}
	}
}
