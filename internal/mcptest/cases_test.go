package mcptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	gomcp "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit/mcpkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/mcpgoidem"
	"github.com/idem-go/idem/mcpidem"
)

// The result is stored as it went out, but for what belongs to the call that it came with.
func TestReplay(t *testing.T) {
	each(t, config{}, func(r *rig) {
		first := r.ask("order", "tea", key("k-1"))
		require.Equal(r, "<order> 1 & tea", first.text())
		require.False(r, first.replayed())
		for range 2 {
			again := r.ask("order", "tea", key("k-1"))
			require.True(r, again.replayed())
			require.Equal(r, first.Content, again.Content)
			require.Equal(r, string(first.Structured), string(again.Structured))
			require.Equal(r, first.Type, again.Type, "the type that this version of the protocol has")
			require.EqualValues(r, 4, again.Meta["shop/till"])
			require.Equal(r, map[string]any{"taskId": "t-1"}, again.Meta["io.modelcontextprotocol/related-task"], "the handle of a task")
			require.NotContains(r, again.Meta, "progressToken")
			require.NotContains(r, again.Meta, "traceparent")
			require.Equal(r, first.Meta["io.modelcontextprotocol/serverInfo"], again.Meta["io.modelcontextprotocol/serverInfo"])
		}
		r.ran("order", 1)
		require.False(r, r.ask("order", "tea", key("k-2")).replayed())
		r.ran("order", 2)
		r.engine.WantRuns("DO shop/order", 2)
	})
}

// A client of another version of the protocol gets what that version knows, with no digit lost.
func TestVersions(t *testing.T) {
	each(t, config{}, func(r *rig) {
		p := params{Name: "order", Arguments: json.RawMessage(`{"item":"tea"}`), Meta: key("k-1")}
		stateless := strings.Contains(r.Name(), "stateless")
		var session string
		if !stateless {
			session = r.initialize("2025-06-18")
		}
		for _, version := range []string{"2025-06-18", modern, "2025-06-18"} {
			if version == modern && !stateless && r.server == "go-sdk" {
				continue // it serves that version without sessions only
			}
			var raw map[string]json.RawMessage
			with := session
			if version == modern {
				with = ""
			}
			require.NoError(r, json.Unmarshal(r.post(version, with, &p), &raw))
			require.Contains(r, string(raw["structuredContent"]), "9007199254740993")
			require.Contains(r, string(raw["_meta"]), "9007199254740993")
			require.Equal(r, map[bool]string{true: `"complete"`}[version == modern], string(raw["resultType"]))
			require.Equal(r, version == modern, strings.Contains(string(raw["_meta"]), "serverInfo"), "what the SDK adds")
		}
		r.ran("order", 1)
	})
}

// initialize opens a session of a version, and returns it.
func (r *rig) initialize(version string) string {
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":{},"clientInfo":{"name":"agent","version":"1"}}}`
	send := func(body, session string) string {
		request := must(http.NewRequestWithContext(r.Context(), http.MethodPost, r.url, strings.NewReader(body)))
		request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if session != "" {
			request.Header.Set("Mcp-Session-Id", session)
		}
		response := must(http.DefaultClient.Do(request))
		require.NoError(r, response.Body.Close())
		return response.Header.Get("Mcp-Session-Id")
	}
	session := send(body, "")
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, session)
	return session
}

// The key is the first that is there.
func TestKeys(t *testing.T) {
	c := config{key: func(h http.Header) string { return h.Get("X-Tool-Use") }}
	c.Argument = "key"
	each(t, c, func(r *rig) {
		n := 0
		runs := func(why string, tool, arguments string, meta map[string]any, again bool) {
			r.Helper()
			g := r.send(r.Context(), tool, arguments, meta)
			require.NotNil(r, g)
			require.Equal(r, again, g.replayed(), why)
			require.Empty(r, g.refused(), why)
			if !again {
				n++
			}
			r.ran("order", n)
		}
		runs("no key", "order", `{"item":"tea"}`, nil, false)
		runs("no key: each call runs", "order", `{"item":"tea"}`, nil, false)
		r.header.set("X-Tool-Use", "use-1")
		runs("the function's", "order", `{"item":"tea"}`, nil, false)
		runs("the function's", "order", `{"item":"tea"}`, nil, true)
		runs("an argument goes before it", "order", `{"item":"tea","key":"arg-1"}`, nil, false)
		r.header.set("X-Tool-Use")
		runs("an argument, which does not count", "order", `{"key":"arg-1", "item":"tea"}`, nil, true)
		runs("as if it were not there", "order", `{"item":"tea","key":""}`, key("arg-1"), true)
		runs("an empty one is none", "order", `{"item":"tea","key":""}`, nil, false)
		r.header.set("Idempotency-Key", `"header-1"`)
		runs("the header goes before it", "order", `{"item":"tea","key":"arg-1"}`, nil, false)
		runs("_meta goes before that", "order", `{"item":"tea","key":"arg-1"}`, key("meta-1"), false)
		runs("_meta goes before that", "order", `{"item":"tea","key":"arg-2"}`, key("meta-1"), true)
		r.header.set("Idempotency-Key", `header-1`)
		runs("one logical key", "order", `{"item":"tea"}`, nil, true)
		r.header.set("Idempotency-Key")

		for name, invalid := range map[string]any{"too long": strings.Repeat("k", 256), "no text": 17, "a line feed": "a\nb", "empty": ""} {
			require.Equal(r, "key_invalid", r.ask("order", "tea", key(invalid)).refused(), name)
		}
		require.Equal(r, "key_invalid", r.send(r.Context(), "order", `{"item":"tea","key":"\u0000"}`, nil).refused())
		r.header.set("Idempotency-Key", "a", "b")
		require.Equal(r, "key_invalid", r.ask("order", "tea", nil).refused())
		r.ran("order", n)
	})
}

// Another order of members and another spelling of numbers are the same arguments.
func TestArguments(t *testing.T) {
	each(t, config{}, func(r *rig) {
		require.False(r, r.send(r.Context(), "order", `{"item":"tea","n":[1,2.50,{"a":9007199254740993,"b":"ü"}]}`, key("k-1")).replayed())
		other := `{"n":[1.0, 2.5,{"b":"\u00fc","a":9007199254740993}], "item":"tea"}`
		require.True(r, r.send(r.Context(), "order", other, key("k-1")).replayed())
		for _, other := range []string{`{"item":"tea"}`, `{"item":"tea","n":[1,2.5,{"a":9007199254740992,"b":"ü"}]}`} {
			refusal := r.send(r.Context(), "order", other, key("k-1"))
			require.Equal(r, "key_reused", refusal.refused())
			require.True(r, refusal.IsError)
		}
		require.False(r, r.send(r.Context(), "upsert", `{"item":"tea"}`, key("k-1")).replayed(), "another tool")
		r.ran("order", 1)
	})
}

func TestRules(t *testing.T) {
	twice := func(r *rig, tool string, meta map[string]any) (first, second *got) {
		return r.ask(tool, "tea", meta), r.ask(tool, "tea", meta)
	}
	t.Run("hints", func(t *testing.T) {
		each(t, config{}, func(r *rig) {
			_, again := twice(r, "read", key("k-1"))
			require.False(r, again.replayed(), "it changes nothing")
			_, again = twice(r, "upsert", key("k-1"))
			require.True(r, again.replayed(), "a hint that counts only if the service says so")
		})
	})
	t.Run("idempotent tools pass", func(t *testing.T) {
		c := config{}
		c.PassIdempotent, c.Default = true, mcpkit.Required
		each(t, c, func(r *rig) {
			_, again := twice(r, "upsert", key("k-1"))
			require.False(r, again.replayed())
			_, again = twice(r, "read", nil)
			require.Empty(r, again.refused())
			refusal, _ := twice(r, "order", nil)
			require.Equal(r, "key_missing", refusal.refused(), "the rule of the others")
			r.ran("order", 0)
		})
	})
	t.Run("by name and by function", func(t *testing.T) {
		c := config{rule: func(name string) mcpkit.Rule {
			return map[string]mcpkit.Rule{"read": mcpkit.Optional, "order": mcpkit.Pass, "upsert": mcpkit.Required}[name]
		}}
		c.Tools = map[string]mcpkit.Rule{"order": mcpkit.Arguments}
		c.Window = time.Hour
		each(t, c, func(r *rig) {
			_, again := twice(r, "read", key("k-1"))
			require.True(r, again.replayed(), "the function goes before the hint")
			refusal, _ := twice(r, "upsert", nil)
			require.Equal(r, "key_missing", refusal.refused())
			first, again := twice(r, "order", nil)
			require.False(r, first.replayed(), "the name goes before the function")
			require.True(r, again.replayed())
			require.False(r, r.ask("order", "milk", nil).replayed())
			require.False(r, r.ask("order", "tea", key("k-1")).replayed(), "a key goes before the arguments")
			r.header.set("X-User", "bob")
			require.False(r, r.ask("order", "tea", nil).replayed(), "another user's")
			r.header.set("X-User", "ann")
			r.engine.Advance(59 * time.Minute)
			require.True(r, r.ask("order", "tea", nil).replayed())
			r.engine.Advance(2 * time.Minute)
			require.False(r, r.ask("order", "tea", nil).replayed(), "the window has passed")
		})
	})
}

// What the server does not have is the server's to refuse, and leaves nothing.
func TestUnknownTool(t *testing.T) {
	c := config{}
	c.Default = mcpkit.Required
	each(t, c, func(r *rig) {
		for i := range 3 {
			name := fmt.Sprint("none-", i)
			_, err := r.client.call(r.Context(), &params{Name: name, Arguments: json.RawMessage(`{"item":"tea"}`), Meta: key("k-1")})
			require.ErrorContains(r, err, name)
		}
		require.Empty(r, r.engine.Events())
	})
}

func TestUsers(t *testing.T) {
	each(t, config{}, func(r *rig) {
		require.False(r, r.ask("order", "tea", key("k-1")).replayed())
		r.header.set("X-User", "bob")
		require.False(r, r.ask("order", "tea", key("k-1")).replayed())
		for _, nobody := range []string{"", "root"} {
			r.header.set("X-User", nobody)
			refusal := r.ask("order", "tea", key("k-1"))
			require.Equal(r, "user_missing", refusal.refused())
			require.NotContains(r, refusal.text(), "root")
			require.Empty(r, r.ask("read", "tea", key("k-1")).refused(), "who calls does not matter")
			require.Empty(r, r.ask("order", "tea", nil).refused())
		}
		r.ran("order", 4)
	})
	t.Run("nobody tells them apart", func(t *testing.T) {
		c := config{}
		c.SharedByAllCallers = true
		each(t, c, func(r *rig) {
			r.ask("order", "tea", key("k-1"))
			r.header.set("X-User", "bob")
			require.True(r, r.ask("order", "tea", key("k-1")).replayed())
		})
	})
}

func TestAuthorize(t *testing.T) {
	c := config{authorize: func(h http.Header) error {
		if h.Get("X-Rights") == "" {
			return nil
		}
		return errors.New("secret reason")
	}}
	each(t, c, func(r *rig) {
		r.ask("order", "tea", key("k-1"))
		require.True(r, r.ask("order", "tea", key("k-1")).replayed())
		r.header.set("X-Rights", "none")
		refusal := r.ask("order", "tea", key("k-1"))
		require.Equal(r, "not_authorized", refusal.refused())
		require.NotContains(r, refusal.text(), "secret")
		require.Empty(r, refusal.Structured)
	})
}

// What has failed runs again; arguments that don't fit and errors of the protocol are never kept.
func TestFailures(t *testing.T) {
	invalid := func(r *rig) {
		for range 2 {
			g := r.send(r.Context(), "order", `{"item":17}`, key("k-9"))
			require.True(r, g.IsError)
			require.Empty(r, g.refused())
			require.False(r, g.replayed())
		}
		require.False(r, r.send(r.Context(), "order", `{"item":"tea"}`, key("k-9")).replayed(), "the model has corrected itself")
		r.ran("order", 1)
		for n := range 2 {
			_, err := r.client.call(r.Context(), &params{Name: "broken", Arguments: json.RawMessage(`{"item":"tea"}`), Meta: key("k-1")})
			require.ErrorContains(r, err, fmt.Sprint("broken ", n+1))
		}
	}
	each(t, config{}, func(r *rig) {
		require.Equal(r, "sold out 1", r.ask("fail", "tea", key("k-1")).text())
		again := r.ask("fail", "tea", key("k-1"))
		require.Equal(r, "sold out 2", again.text())
		require.True(r, again.IsError)
		invalid(r)
	})
	t.Run("the service says that a failure is an answer", func(t *testing.T) {
		each(t, config{failed: func(isError bool) bool { return !isError }}, func(r *rig) {
			r.ask("fail", "tea", key("k-1"))
			again := r.ask("fail", "tea", key("k-1"))
			require.Equal(r, "sold out 1", again.text())
			require.True(r, again.IsError && again.replayed())
			invalid(r)
		})
	})
	for _, onFailure := range []core.Disposition{core.Keep, core.Abandon} {
		t.Run(fmt.Sprint("disposition ", onFailure), func(t *testing.T) {
			c := config{}
			c.Policy.OnFailure, c.Policy.Abandoned = onFailure, core.Uncertain(nil)
			each(t, c, func(r *rig) {
				r.ask("fail", "tea", key("k-1"))
				again := r.ask("fail", "tea", key("k-1"))
				require.Equal(r, map[core.Disposition]string{core.Abandon: "uncertain"}[onFailure], again.refused())
				require.Equal(r, onFailure == core.Keep, again.replayed())
				r.ran("fail", 1)
				r.confirmed("k-3")
				if onFailure == core.Keep {
					invalid(r)
				}
			})
		})
	}
	t.Run("a failure is kept though successes are not", func(t *testing.T) {
		c := config{}
		c.Policy.OnFailure, c.Policy.OnSuccess = core.Keep, core.Release
		each(t, c, func(r *rig) {
			r.ask("fail", "tea", key("k-1"))
			require.True(r, r.ask("fail", "tea", key("k-1")).replayed())
		})
	})
}

// confirmed pays, which asks back, and once only.
func (r *rig) confirmed(k string) {
	r.Helper()
	paid := r.ask("pay", "tea", key(k))
	require.Equal(r, "paid 1", paid.text())
	require.False(r, paid.replayed())
	again := r.ask("pay", "tea", key(k))
	require.True(r, again.replayed())
	require.Equal(r, "paid 1", again.text(), "whoever begins anew is not asked again, and pays once")
	r.ran("asked", 1)
	r.ran("pay", 1)
}

// A result that asks back is no answer, and the call that goes on with it is no duplicate of the first.
func TestAsksBack(t *testing.T) {
	each(t, config{}, func(r *rig) {
		r.confirmed("k-1")
		if !strings.Contains(r.Name(), "stateless") && r.server == "go-sdk" {
			return // it serves the version that asks back in a result without sessions only
		}
		first := params{Name: "pay", Arguments: json.RawMessage(`{"item":"milk"}`), Meta: key("k-2")}
		going := first
		for n := range 2 { // its answer was lost: it is asked again
			var asked got
			require.NoError(r, json.Unmarshal(r.post(modern, "", &first), &asked))
			require.Equal(r, "input_required", asked.Type)
			require.Equal(r, fmt.Sprint("state ", n+2), asked.State)
			going.State = asked.State
		}
		going.Responses = json.RawMessage(`{"confirm":{"action":"accept","content":{}}}`)
		for n := range 3 {
			var paid got
			require.NoError(r, json.Unmarshal(r.post(modern, "", &going), &paid))
			require.Equal(r, "paid 2", paid.text())
			require.Equal(r, n > 0, paid.replayed())
			going.State = fmt.Sprint(going.State, n) // with another state, too, it is the same payment
		}
		var again got
		require.NoError(r, json.Unmarshal(r.post(modern, "", &first), &again))
		require.Equal(r, "paid 2", again.text())
		r.ran("pay", 2)
	})
}

// Every refusal is a sentence on which a model can act, and its code.
func TestRefusals(t *testing.T) {
	refused := func(r *rig, meta map[string]any, code, text string) {
		r.Helper()
		refusal := r.ask("order", "tea", meta)
		require.Equal(r, code, refusal.refused())
		require.True(r, refusal.IsError)
		require.Contains(r, refusal.text(), text)
		require.Equal(r, 1, strings.Count(refusal.text(), "."), "one sentence")
		for _, never := range []string{"new key", "another key", "different key"} {
			require.NotContains(r, refusal.text(), never)
		}
		r.ran("order", 0)
	}
	c := config{}
	c.Policy.Duplicate = core.Wait(time.Millisecond)
	c.Policy.Abandoned = core.Uncertain(nil)
	c.Default = mcpkit.Required
	each(t, c, func(r *rig) {
		refused(r, nil, "key_missing", "must send")
		require.Equal(r, 1, r.engine.Count(core.Refused, "DO shop/order"))
		refused(r, key(1), "key_invalid", "255 bytes")
		r.engine.NextIsRunning(time.Minute)
		refused(r, key("k-1"), "in_progress", "call this tool again with exactly the same arguments and the same idempotency key in 1 s")
		require.EqualValues(r, 1, r.ask("order", "tea", key("k-1")).Meta["io.github.idem-go/retry-after"])
		r.engine.NextIsAbandoned(1)
		refused(r, key("k-2"), "uncertain", "do not repeat it, and tell the person")
		r.engine.Fail(idemtest.Acquire)
		refused(r, key("k-3"), "store_unavailable", "the same arguments and the same idempotency key")
		r.engine.Fail()
		require.NoError(r, r.engine.Drain(r.Context()))
		refused(r, key("k-4"), "shutting_down", "the same idempotency key")
	})
	t.Run("reject", func(t *testing.T) {
		c := config{}
		c.Policy.Duplicate = core.Reject("")
		each(t, c, func(r *rig) {
			r.ask("order", "tea", key("k-1"))
			require.Equal(r, "duplicate", r.ask("order", "tea", key("k-1")).refused())
			r.ask("fail", "tea", key("k-1"))
			require.Equal(r, "sold out 2", r.ask("fail", "tea", key("k-1")).text())
		})
	})
	t.Run("the argument", func(t *testing.T) {
		c := config{}
		c.Argument, c.Default = "action", mcpkit.Required
		each(t, c, func(r *rig) { refused(r, nil, "key_missing", `"action"`) })
	})
	t.Run("the arguments", func(t *testing.T) {
		c := config{}
		c.Policy.Duplicate, c.Default = core.Wait(time.Millisecond), mcpkit.Arguments
		each(t, c, func(r *rig) {
			r.engine.NextIsRunning(time.Minute)
			refused(r, nil, "in_progress", "exactly the same arguments in 1 s")
		})
	})
	t.Run("no longer available", func(t *testing.T) {
		c := config{}
		c.Policy.ResultLimit = 10
		each(t, c, func(r *rig) {
			require.Empty(r, r.ask("order", "tea", key("k-1")).refused())
			require.Equal(r, "result_unavailable", r.ask("order", "tea", key("k-1")).refused())
			r.ran("order", 1)
		})
	})
}

// A client that leaves does not end the run; the call that it makes again waits for that, and gets its result.
func TestClientLeaves(t *testing.T) {
	each(t, config{}, func(r *rig) {
		ctx, leave := context.WithCancel(r.Context())
		left := make(chan *got)
		go func() { left <- r.send(ctx, "gate", `{"item":"tea"}`, key("k-1")) }()
		<-r.shop.waiting
		leave()
		require.Nil(r, <-left)
		r.client = r.again() // after that, that of the go-sdk does not go on with a server of mcp-go
		go func() { left <- r.ask("gate", "tea", key("k-1")) }()
		close(r.shop.gate)
		again := <-left
		require.NotNil(r, again)
		require.Equal(r, "through 1", again.text())
		require.True(r, again.replayed())
		r.ran("gate", 1)
	})
}

func TestManyAtOnce(t *testing.T) {
	each(t, config{}, func(r *rig) {
		const calls = 200
		var wg sync.WaitGroup
		results := make([]*got, calls)
		for i := range calls {
			wg.Go(func() { results[i] = r.ask("gate", "tea", key("k-1")) })
		}
		<-r.shop.waiting
		close(r.shop.gate)
		wg.Wait()
		first := 0
		for _, g := range results {
			require.NotNil(r, g)
			require.Equal(r, "through 1", g.text())
			if !g.replayed() {
				first++
			}
		}
		require.Equal(r, 1, first)
		r.ran("gate", 1)
	})
}

// Lists, prompts and resources are those of a server without a guard.
func TestUntouched(t *testing.T) {
	each(t, config{}, func(r *rig) {
		guarded := must(r.client.lists(r.Context()))
		c := config{bare: true}
		c.Name = "shop"
		r.serve(c)
		require.Equal(r, must(r.again().lists(r.Context())), guarded)
		require.Empty(r, r.engine.Events())
	})
}

func TestCheck(t *testing.T) {
	c := config{}
	c.Tools = map[string]mcpkit.Rule{"pay": mcpkit.Required, "order": mcpkit.Arguments, "gate": mcpkit.Optional, "none": mcpkit.Pass}
	each(t, c, func(r *rig) {
		report, err := r.check.check()
		fault, _ := errors.AsType[*core.ConfigError](err)
		require.NotNil(r, fault)
		require.Contains(r, err.Error(), "none is not a tool")
		require.Equal(r, &mcpkit.Report{Passing: []string{"await", "counts", "open", "read"},
			Optional: []string{"broken", "fail", "gate", "upsert"}, Required: []string{"pay"}, Arguments: []string{"order"},
			Undecided: []string{"broken", "fail", "upsert"}}, report)
		require.Contains(r, report.String(), "undecided: broken, fail, upsert")
		require.Contains(r, report.String(), "passing: await")
	})
}

// What one has stored the other replays, and so does what an operator has settled.
func TestOneStoreForBoth(t *testing.T) {
	engine := idemtest.New(t, core.Config{})
	var wants []*got
	for _, sdk := range sdks {
		for _, other := range sdks {
			s := newShop()
			c := config{}
			c.Name, c.SharedByAllCallers = "shop", true
			for _, serve := range []func(*core.Engine, config, *shop) serving{sdk.serve, other.serve} {
				url := listen(t, serve(engine.Engine, c, s).http(false))
				client := must(connectMCPGo(t, url, http.DefaultClient, "", false))
				p := params{Name: "order", Arguments: json.RawMessage(`{"item":"tea"}`), Meta: key(sdk.name + other.name)}
				wants = append(wants, must(client.call(t.Context(), &p)))
			}
			first, again := wants[len(wants)-2], wants[len(wants)-1]
			require.False(t, first.replayed())
			require.True(t, again.replayed())
			require.Equal(t, first.Content, again.Content)
			require.JSONEq(t, string(first.Structured), string(again.Structured))
			require.Equal(t, 1, s.counts()["order"])
		}
	}
}

func TestEncode(t *testing.T) {
	for name, encoded := range map[string][]byte{
		"mcpidem":   must(mcpidem.Encode(goText("found"))),
		"mcpgoidem": must(mcpgoidem.Encode(mcpgoText("found"))),
		"garbage":   []byte("garbage"),
	} {
		t.Run(name, func(t *testing.T) {
			c := config{}
			c.Policy.Abandoned = core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) {
				return core.Finished(encoded), nil
			})
			each(t, c, func(r *rig) {
				r.engine.NextIsAbandoned(1)
				g := r.ask("order", "tea", key("k-1"))
				r.ran("order", 0)
				if name == "garbage" {
					require.Equal(r, string(codes.ResultUnavailable), g.refused())
					return
				}
				require.True(r, g.replayed())
				require.Equal(r, "found", g.text())
			})
		})
	}
	require.JSONEq(t, `{"content":[]}`, string(must(mcpidem.Encode(new(gomcp.CallToolResult)))), "content is never null")
	raw := must(mcpgoidem.Encode(&mcp.CallToolResult{RawStructuredContent: json.RawMessage("[1]")}))
	require.JSONEq(t, `{"content":[],"structuredContent":[1]}`, string(raw))
	_, err := mcpidem.Encode(nil)
	require.Error(t, err)
	_, err = mcpgoidem.Encode(nil)
	require.Error(t, err)
}
