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
	for _, c := range []struct {
		policy core.TaskPolicy
		fields []string
	}{
		{core.TaskPolicy{Record: core.Record{Lease: -1}, ResultLimit: -1}, []string{"TaskPolicy.ResultLimit", "TaskPolicy.Lease"}},
		{core.TaskPolicy{Duplicate: core.Reject(""), Record: core.Record{OnFailure: core.Keep, Retention: -1}},
			[]string{"TaskPolicy.Retention", "TaskPolicy.OnFailure"}},
		{core.TaskPolicy{Record: core.Record{OnFailure: core.Keep}}, nil},
	} {
		m, err := watermillidem.New(e, watermillidem.Config{Policy: c.policy})
		require.Equal(t, len(c.fields) == 0, err == nil)
		require.Equal(t, err != nil, m == nil)
		for _, field := range c.fields {
			assert.ErrorContains(t, err, field)
		}
		if err != nil {
			fault, _ := errors.AsType[*core.ConfigError](err)
			assert.Equal(t, c.fields[0], fault.Field)
			assert.Panics(t, func() { watermillidem.MustNew(e, watermillidem.Config{Policy: c.policy}) })
		}
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

// A message that is refused for the time being is held, so that it does not come again at once, but no longer than its
// subscriber is open or its broker waits.
func TestPause(t *testing.T) {
	for _, c := range []struct{ pause, limit, held time.Duration }{
		{0, 0, time.Second}, {time.Minute, 0, time.Minute}, {-1, 0, 0}, {time.Hour, time.Second, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := idemtest.New(t, core.Config{})
			config := charge(core.TaskPolicy{})
			config.Pause = c.pause
			handle := watermillidem.MustNew(e.Engine, config)(nothing)
			check := func(uuid string, want error, held time.Duration) {
				ctx, start := t.Context(), time.Now()
				if c.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				_, err := handle(message.NewMessageWithContext(ctx, uuid, nil))
				assert.ErrorIs(t, err, want)
				assert.Equal(t, held, time.Since(start))
			}
			e.NextIsRunning(3 * time.Hour)
			check("1", codes.InProgress, c.held)
			e.Fail(idemtest.Acquire)
			check("2", codes.StoreUnavailable, c.held)
			e.Fail()
			check("", codes.KeyMissing, 0)
			check("3", nil, 0)
		})
	}
}

type tenant struct{}

// The handler's message has the run's context, and afterwards its own again. What it produces goes out with its error, as
// without this middleware. Publishers obey the contexts of messages, and publish when the run has ended.
func TestContext(t *testing.T) {
	own := context.WithValue(t.Context(), tenant{}, "t1")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, end := range map[string]func() error{
		"success": func() error { return nil }, "failure": func() error { return errCard }, "panic": func() error { panic("a bug") },
		// of a call of its own: it says nothing about this message
		"a refusal": func() error { return core.NewRefusal(codes.KeyMissing, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			e := idemtest.New(t, core.Config{})
			var inside context.Context
			handle := middleware.Recoverer(watermillidem.MustNew(e.Engine, charge(core.TaskPolicy{}))(
				func(msg *message.Message) ([]*message.Message, error) {
					inside = msg.Context()
					assert.NoError(t, inside.Err())
					return []*message.Message{msg, message.NewMessageWithContext(inside, "2", nil),
						message.NewMessageWithContext(ended, "3", nil)}, end()
				}))
			msg := message.NewMessageWithContext(own, "1", nil)
			produced, err := handle(msg)
			assert.Equal(t, name == "success", err == nil)
			if name == "failure" {
				assert.Equal(t, errCard, err, "it is the handler's own")
			}
			assert.False(t, watermillidem.Permanent(err))
			assert.Equal(t, "t1", inside.Value(tenant{}))
			assert.EqualValues(t, 1, core.RunFrom(inside).Attempt())
			assert.Contains(t, core.RunFrom(inside).Key().Raw(), "M=DO%20chargeK=1")
			assert.Error(t, inside.Err(), "the run has ended")
			assert.Equal(t, own, msg.Context())
			if name == "panic" {
				return
			}
			require.Len(t, produced, 3)
			assert.NoError(t, produced[1].Context().Err())
			assert.Equal(t, "t1", produced[1].Context().Value(tenant{}))
			assert.Equal(t, ended, produced[2].Context(), "it is the handler's own")
		})
	}
}

func TestKeys(t *testing.T) {
	e := idemtest.New(t, core.Config{})
	config := charge(core.TaskPolicy{})
	config.Key = middleware.NewMessageHasherFromMetadataField("order")
	handle := watermillidem.MustNew(e.Engine, config)(nothing)
	for _, c := range []struct {
		metadata message.Metadata
		runs     int
		want     error
	}{
		{message.Metadata{"order": "o-1"}, 1, nil}, {message.Metadata{"order": "o-1"}, 1, nil}, {message.Metadata{"order": "o-2"}, 2, nil},
		{message.Metadata{}, 2, codes.KeyInvalid}, {message.Metadata{"order": ""}, 2, codes.KeyMissing},
	} {
		m := message.NewMessage("1", []byte("5"))
		m.Metadata = c.metadata
		_, err := handle(m)
		require.ErrorIs(t, err, c.want)
		assert.Equal(t, c.want != nil, watermillidem.Permanent(err))
		e.WantRuns("DO charge", c.runs)
	}
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
	equal, none, both := [2]string{"5", "5"}, config(), config("a", "b")
	names := []string{"b", "a"}
	for _, c := range []struct {
		why           string
		first, second watermillidem.Config
		payloads      [2]string
		metadata      [2]md
		same          bool
	}{
		{"metadata count if they are named", none, none, equal, [2]md{{"a": "1"}, {"a": "2"}}, true},
		{"the payload", none, none, [2]string{"5", "6"}, [2]md{}, false},
		{"no payload", none, none, [2]string{"5", ""}, [2]md{}, false},
		{"another one", both, both, equal, [2]md{{"a": "1", "c": "1"}, {"a": "1", "c": "2"}}, true},
		{"a named one", both, both, equal, [2]md{{"a": "1"}, {"a": "2"}}, false},
		{"the payload beside them", both, both, [2]string{"5", "6"}, [2]md{{"a": "1"}, {"a": "1"}}, false},
		{"empty and missing are equal", both, both, equal, [2]md{{"a": "1", "b": ""}, {"a": "1"}}, true},
		{"a value under another name", both, both, equal, [2]md{{"a": "1"}, {"b": "1"}}, false},
		{"values divided otherwise", both, both, equal, [2]md{{"a": "1b", "b": "2"}, {"a": "1", "b": "b2"}}, false},
		{"the order of names", both, config(names...), equal, [2]md{{"a": "1", "b": "2"}, {"a": "1", "b": "2"}}, true},
		{"the names", config("a"), config("b"), equal, [2]md{{"a": "1"}, {"b": "1"}}, false},
	} {
		assert.Equal(t, c.same, same(c.first, c.second, c.payloads, c.metadata), c.why)
	}
	assert.Equal(t, []string{"b", "a"}, names, "the caller's do not change")
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
			_, err = watermillidem.Finished(c.produced...)
			assert.Equal(t, c.stored, err == nil, "what would not come back unchanged is no verdict")

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

func TestFinished(t *testing.T) {
	for _, finished := range [][]*message.Message{nil, {receipt(order("1", "5"), "paid")}} {
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
	}
}

func TestPermanentAndTemporary(t *testing.T) {
	refused := func(code codes.Code) error {
		return fmt.Errorf("wrapped: %w", &watermillidem.RefusedError{Refusal: core.NewRefusal(code, errCard)})
	}
	for code, temporary := range map[codes.Code]bool{
		codes.Uncertain: false, codes.KeyReused: false, codes.KeyMissing: false, codes.KeyInvalid: false, codes.ResultUnavailable: false,
		codes.GuardConflict: false, codes.InProgress: true, codes.StoreUnavailable: true, codes.ShuttingDown: true,
	} {
		assert.Equal(t, !temporary, watermillidem.Permanent(refused(code)), code)
		assert.Equal(t, temporary, watermillidem.Temporary(refused(code)), code)
	}
	for _, err := range []error{nil, errCard, core.NewRefusal(codes.KeyReused, nil), core.NewRefusal(codes.InProgress, nil)} {
		assert.False(t, watermillidem.Permanent(err))
		assert.False(t, watermillidem.Temporary(err))
	}
	assert.ErrorIs(t, refused(codes.KeyReused), codes.KeyReused)
	assert.ErrorIs(t, refused(codes.KeyReused), errCard)
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
