package mcpkit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit/mcpkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemtest"
)

// The cases over connections are those of internal/mcptest.
func TestFaults(t *testing.T) {
	engine := idemtest.New(t, core.Config{})
	_, err := mcpkit.New(engine.Engine, mcpkit.Config{Package: "p", Name: "a/b", Default: 9, Window: -1, User: true,
		SharedByAllCallers: true, Authorize: true, Tools: map[string]mcpkit.Rule{"pay": 9},
		Policy: core.TaskPolicy{Name: "n", Presence: core.Optional, Linger: time.Second, Duplicate: core.Reject(""), ResultLimit: -1}})
	for _, field := range []string{"Name: is \"a/b\"", "Policy: has the Name", "Policy: has a Presence", "Policy: has a Linger",
		"User: is set", "Default: is unknown", "Tools: has an unknown rule for pay", "Window: is negative",
		"Authorize: has no effect", "ResultLimit"} {
		require.ErrorContains(t, err, field)
	}
	fault, ok := errors.AsType[*core.ConfigError](err)
	require.True(t, ok)
	require.Equal(t, "p.Config.Name", fault.Field)
	_, err = mcpkit.New(engine.Engine, mcpkit.Config{Name: "shop"})
	require.NoError(t, err)
	_, err = mcpkit.New(engine.Engine, mcpkit.Config{})
	require.ErrorContains(t, err, "Name")
}

// Whatever the code, a model is never told to choose another key.
func TestTexts(t *testing.T) {
	g := newGuard(t, mcpkit.Config{Name: "shop"})
	for _, code := range []codes.Code{codes.InProgress, codes.Duplicate, codes.ResultUnavailable, codes.Uncertain, codes.KeyReused,
		codes.KeyExpired, codes.KeyMissing, codes.KeyInvalid, codes.UserMissing, codes.NotAuthorized, codes.RateLimited,
		codes.StoreUnavailable, codes.ShuttingDown, codes.Unfinished, codes.GuardConflict, codes.NoRun} {
		refusal := core.NewRefusal(code, errors.New("secret"))
		refusal.RetryAfter = 1500 * time.Millisecond
		meta, text := g.Refused(refusal, new(mcpkit.Call))
		require.Equal(t, string(code), meta[mcpkit.RefusedMeta])
		require.EqualValues(t, 2, meta[mcpkit.RetryAfterMeta])
		require.NotContains(t, text, "secret")
		require.NotContains(t, strings.ToLower(text), "new")
		require.Equal(t, 1, strings.Count(text, "."), text)
	}
	meta, text := g.Refused(core.NewRefusal(codes.KeyReused, nil), new(mcpkit.Call))
	require.NotContains(t, meta, mcpkit.RetryAfterMeta)
	require.Contains(t, text, "repeat it with its own arguments")
}

// docs/agents.md shows the sentences as they are.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/agents.md")
	require.NoError(t, err)
	require.Contains(t, string(page), mcpkit.KeyDescription)
	g := newGuard(t, mcpkit.Config{Name: "shop", Argument: "action_id"})
	for _, code := range []codes.Code{codes.InProgress, codes.Duplicate, codes.ResultUnavailable, codes.Uncertain, codes.KeyReused,
		codes.KeyMissing, codes.KeyInvalid, codes.UserMissing, codes.NotAuthorized, codes.StoreUnavailable, codes.ShuttingDown,
		codes.Unfinished} {
		_, text := g.Refused(core.NewRefusal(code, nil), new(mcpkit.Call))
		require.Contains(t, string(page), "`"+code+"`")
		require.Contains(t, string(page), "| "+text+" |", code)
	}
}

// A refusal that a tool has from a service further down, or a run that is ended from outside, is told in the words of ours.
func TestReported(t *testing.T) {
	for name, c := range map[string]struct {
		policy  core.TaskPolicy
		outcome func(ctx context.Context) mcpkit.Outcome
		want    codes.Code
	}{
		"a refusal": {outcome: func(context.Context) mcpkit.Outcome {
			return mcpkit.Outcome{Err: core.NewRefusal(codes.RateLimited, nil), Ending: mcpkit.Broken}
		}, want: codes.RateLimited},
		"a refusal is never kept": {policy: core.TaskPolicy{Record: core.Record{OnFailure: core.Keep}},
			outcome: func(context.Context) mcpkit.Outcome {
				return mcpkit.Outcome{Err: core.NewRefusal(codes.RateLimited, nil), Ending: mcpkit.Failed}
			}, want: codes.RateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, mcpkit.Config{Name: "shop", Policy: c.policy})
			runs := 0
			for range 2 {
				_, refusal := g.Do(t.Context(), call("k-1"), func(ctx context.Context) mcpkit.Outcome {
					runs++
					return c.outcome(ctx)
				})
				require.ErrorIs(t, refusal, c.want)
			}
			require.Equal(t, 2, runs)
		})
	}
	for name, over := range map[string]func(context.Context) error{"its error": context.Context.Err, "its cause": context.Cause} {
		t.Run("shutdown, "+name, func(t *testing.T) {
			engine := idemtest.New(t, core.Config{})
			g, err := mcpkit.New(engine.Engine, mcpkit.Config{Name: "shop"})
			require.NoError(t, err)
			_, refusal := g.Do(t.Context(), call("k-1"), func(ctx context.Context) mcpkit.Outcome {
				past, end := context.WithCancel(context.Background())
				end()
				go func() { _ = engine.Drain(past) }() // it waits for this run
				<-ctx.Done()
				return mcpkit.Outcome{Err: fmt.Errorf("bank: %w", over(ctx)), Ending: mcpkit.Failed}
			})
			require.ErrorIs(t, refusal, codes.ShuttingDown)
		})
		t.Run("a lost lease, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := idemtest.New(t, core.Config{})
				g, err := mcpkit.New(engine.Engine, mcpkit.Config{Name: "shop"})
				require.NoError(t, err)
				engine.Fail(idemtest.Renew)
				_, refusal := g.Do(t.Context(), call("k-1"), func(ctx context.Context) mcpkit.Outcome {
					<-ctx.Done()
					return mcpkit.Outcome{Err: over(ctx), Ending: mcpkit.Broken}
				})
				require.ErrorIs(t, refusal, codes.Unfinished)
			})
		})
	}
	t.Run("a call that has ended is not begun", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, refusal := newGuard(t, mcpkit.Config{Name: "shop"}).Do(ctx, call("k-1"), func(context.Context) mcpkit.Outcome {
			t.Error("it runs")
			return mcpkit.Outcome{}
		})
		require.ErrorIs(t, refusal, codes.Unfinished)
	})
}

// A tool that has given up because its context has ended has no answer, whatever counts as one.
func TestGivenUp(t *testing.T) {
	keep := core.TaskPolicy{Record: core.Record{OnFailure: core.Keep}}
	for name, c := range map[string]struct {
		policy core.TaskPolicy
		ending mcpkit.Ending
		err    error
	}{
		"kept failures":                {policy: keep, ending: mcpkit.Failed},
		"failures that are answers":    {ending: mcpkit.Answered, err: fmt.Errorf("bank: %w", context.Canceled)},
		"the deadline of a call of it": {ending: mcpkit.Answered, err: context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, mcpkit.Config{Name: "shop", Policy: c.policy, Linger: -1})
			ctx, leave := context.WithCancel(t.Context())
			_, refusal := g.Do(ctx, call("k-1"), func(ctx context.Context) mcpkit.Outcome {
				leave()
				<-ctx.Done()
				return mcpkit.Outcome{Ending: c.ending, Err: c.err, Result: func() ([]byte, error) { return []byte("{}"), nil }}
			})
			require.Nil(t, refusal)
			ran := false
			stored, refusal := g.Do(t.Context(), call("k-1"), func(context.Context) mcpkit.Outcome {
				ran = true
				return mcpkit.Outcome{Result: func() ([]byte, error) { return []byte("{}"), nil }}
			})
			require.Nil(t, refusal)
			require.Nil(t, stored, name)
			require.True(t, ran, name)
		})
	}
}

// A duplicate waits for half a minute, and a key made of arguments lasts for a minute, unless the service says so.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := idemtest.New(t, core.Config{})
		g, err := mcpkit.New(engine.Engine, mcpkit.Config{Name: "shop"})
		require.NoError(t, err)
		runs := 0
		pay := func() *core.Refusal {
			c := mcpkit.Call{Tool: "pay", Rule: mcpkit.Arguments, User: nobody}
			_, refusal := g.Do(t.Context(), &c, func(context.Context) mcpkit.Outcome {
				runs++
				return mcpkit.Outcome{Result: func() ([]byte, error) { return []byte("{}"), nil }}
			})
			return refusal
		}
		engine.NextIsRunning(time.Hour)
		start := time.Now()
		require.ErrorIs(t, pay(), codes.InProgress)
		require.Equal(t, 30*time.Second, time.Since(start))
		engine.Advance(time.Hour)
		for i, later := range []time.Duration{0, 59 * time.Second, 2 * time.Second} {
			engine.Advance(later)
			require.Nil(t, pay())
			require.Equal(t, []int{1, 1, 2}[i], runs)
		}
	})
}

// The run's context outlives the caller's by Linger.
func TestLinger(t *testing.T) {
	for linger, want := range map[time.Duration]time.Duration{0: time.Minute, 5 * time.Second: 5 * time.Second, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			g := newGuard(t, mcpkit.Config{Name: "shop", Linger: linger})
			_, refusal := g.Do(ctx, call("k-1"), func(ctx context.Context) mcpkit.Outcome {
				start := time.Now()
				leave()
				<-ctx.Done()
				require.Equal(t, want, time.Since(start))
				return mcpkit.Outcome{Ending: mcpkit.Failed}
			})
			require.Nil(t, refusal)
		})
	}
}

// Calls with a key made of their arguments are one at a time under a policy that keeps no results.
func TestArgumentsAtATime(t *testing.T) {
	engine := idemtest.New(t, core.Config{})
	c := mcpkit.Config{Name: "shop", Policy: core.TaskPolicy{Duplicate: core.Reject(""), Record: core.Record{OnSuccess: core.Release}}}
	g, err := mcpkit.New(engine.Engine, c)
	require.NoError(t, err)
	pay := mcpkit.Call{Tool: "pay", Rule: mcpkit.Arguments, User: nobody}
	for range 2 {
		ran := false
		_, refusal := g.Do(t.Context(), &pay, func(context.Context) mcpkit.Outcome {
			ran = true
			_, refusal := g.Do(t.Context(), &pay, func(context.Context) mcpkit.Outcome { return mcpkit.Outcome{} })
			require.ErrorIs(t, refusal, codes.InProgress)
			return mcpkit.Outcome{}
		})
		require.Nil(t, refusal)
		require.True(t, ran)
	}
	c.Window = time.Minute
	_, err = mcpkit.New(engine.Engine, c)
	require.ErrorContains(t, err, "Config.Window: has no effect")
}

// A tool that asks back keeps what its steps have done.
func TestStepsAreKept(t *testing.T) {
	g := newGuard(t, mcpkit.Config{Name: "shop"})
	steps := 0
	for i := range 2 {
		_, refusal := g.Do(t.Context(), call("k-1"), func(ctx context.Context) mcpkit.Outcome {
			_, err := core.Step(ctx, "reserve", func(context.Context) (int, error) { steps++; return steps, nil })
			require.NoError(t, err)
			ending := mcpkit.Asks
			if i > 0 {
				ending = mcpkit.Answered
			}
			return mcpkit.Outcome{Ending: ending, Result: func() ([]byte, error) { return []byte("{}"), nil }}
		})
		require.Nil(t, refusal)
	}
	require.Equal(t, 1, steps)
}

// What may not be in a key is refused, whoever has made it.
func TestInvalidKeys(t *testing.T) {
	g := newGuard(t, mcpkit.Config{Name: "shop"})
	for _, key := range []string{"a\x7f", "a\xff", "\t", strings.Repeat("k", 256)} {
		c := mcpkit.Call{Tool: "pay", Rule: mcpkit.Optional, User: nobody, Key: func() string { return key }}
		_, refusal := g.Do(t.Context(), &c, func(context.Context) mcpkit.Outcome {
			t.Error("it runs")
			return mcpkit.Outcome{}
		})
		require.ErrorIs(t, refusal, codes.KeyInvalid)
	}
}

// No arguments are empty ones.
func TestNoArguments(t *testing.T) {
	g := newGuard(t, mcpkit.Config{Name: "shop"})
	runs := 0
	for _, arguments := range []string{"", "null", "{}", " { } "} {
		c := call("k-1")
		c.Arguments = []byte(arguments)
		_, refusal := g.Do(t.Context(), c, func(context.Context) mcpkit.Outcome {
			runs++
			return mcpkit.Outcome{Result: func() ([]byte, error) { return []byte("{}"), nil }}
		})
		require.Nil(t, refusal, arguments)
	}
	require.Equal(t, 1, runs)
}

// A result that can't be encoded is remembered without it.
func TestNotEncoded(t *testing.T) {
	g := newGuard(t, mcpkit.Config{Name: "shop"})
	for _, want := range []error{nil, codes.ResultUnavailable} {
		_, refusal := g.Do(t.Context(), call("k-1"), func(context.Context) mcpkit.Outcome {
			require.NoError(t, want)
			return mcpkit.Outcome{Result: func() ([]byte, error) { return nil, errors.New("no JSON") }}
		})
		if want == nil {
			require.Nil(t, refusal)
		} else {
			require.ErrorIs(t, refusal, want)
		}
	}
}

// What is sealed is no digest that anybody can make of the arguments.
func TestSealedArguments(t *testing.T) {
	keys := make(map[bool]string)
	for _, sealed := range []bool{false, true} {
		var config core.Config
		if sealed {
			key, digest := "0123456789abcdef0123456789ABCDEF", "ABCDEF0123456789abcdef0123456789"
			config.Seal = &core.Seal{Keys: []core.Secret{{Name: "a", Key: []byte(key)}}, DigestKey: []byte(digest)}
		}
		engine := idemtest.New(t, config)
		g, err := mcpkit.New(engine.Engine, mcpkit.Config{Name: "shop"})
		require.NoError(t, err)
		c := mcpkit.Call{Tool: "pay", Rule: mcpkit.Arguments, User: nobody}
		_, refusal := g.Do(t.Context(), &c, func(ctx context.Context) mcpkit.Outcome {
			keys[sealed] = core.RunFrom(ctx).Key().String()
			return mcpkit.Outcome{Ending: mcpkit.Failed}
		})
		require.Nil(t, refusal)
	}
	require.NotEqual(t, keys[false], keys[true])
}

func nobody() (string, error) { return "", nil }

func call(key string) *mcpkit.Call {
	return &mcpkit.Call{Tool: "pay", Rule: mcpkit.Optional, Meta: key, User: nobody}
}

func newGuard(t *testing.T, c mcpkit.Config) *mcpkit.Guard {
	g, err := mcpkit.New(idemtest.New(t, core.Config{}).Engine, c)
	require.NoError(t, err)
	return g
}
