package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// byStatus answers with the status that the query asks for.
func byStatus(_ *probe, c Call, n int) error {
	status, _ := strconv.Atoi(c.Query("status"))
	return c.Blob(status, "application/json", fmt.Appendf(nil, `{"status":%d,"n":%d}`, status, n))
}

// fails fails by the framework's own error, with the status that the query asks for.
func fails(_ *probe, c Call, _ int) error {
	status, _ := strconv.Atoi(c.Query("status"))
	c.SetHeader("X-Reason", "no stock")
	return c.Fail(status, "no stock")
}

// firstFails fails at its first execution.
func firstFails(h *probe, c Call, n int) error {
	if n > 1 {
		return receipt(h, c, n)
	}
	return fails(h, c, n)
}

// failures are an answer that stands, and one that does not.
var failures = []step{
	ask{chosen(posted("/orders?status=422", order)), failed(422), ""},
	ask{chosen(posted("/orders?status=422", order)), failedAgain(422), ""},
	ask{chosen(posted("/orders?status=503", order)), failed(503), ""},
	ask{chosen(posted("/orders?status=503", order)), failed(503), ""},
}

// chosen is r under a key that the client has chosen: a 4xx is then an answer that stands.
func chosen(r request) request {
	r.keys = []string{"k-" + strings.NewReplacer("/", "", "?", "-", "=", "-").Replace(r.target)}
	return r
}

func failed(status int) want { return want{status: status} }

func failedAgain(status int) want { return want{status: status, kind: replay} }

// failureCases: what is a failure, and what becomes of it.
var failureCases = []testCase{
	{
		name:    "failures and refusals of the handler's",
		why:     "a status of 500 and above is a failure: it is released, not kept. A 4xx is an answer, and is replayed (docs/policies.md)",
		policy:  core.ClientKey(),
		handler: byStatus,
		steps:   failures,
	},
	{
		name: "a framework's error",
		why: "an error that the handler returns is stored as the framework renders it, which happens after the " +
			"middleware chain; a failure is released",
		needs:   Features{NativeErrors: true},
		ownText: true,
		policy:  core.ClientKey(),
		handler: fails,
		steps:   failures,
	},
	{
		name: "a refusal that the handler reports",
		why: "a handler that calls core.Do, or a store, returns what refuses it: the client gets " +
			"it as from a guard, and it is no result",
		noBare:  true,
		handler: firstRefused,
		steps: []step{
			ask{anOrder, reported, ""},
			ask{anOrder, created, ""},
			ask{anOrder, replayed, ""},
		},
	},
	{
		name:    "a refusal in the place of an answer",
		why:     "what was to describe the handler's answer does not describe the refusal, and a middleware in front keeps what it has set",
		needs:   Features{OuterErrors: true},
		noBare:  true,
		app:     App{Outer: []adapter.Field{field("X-Frame-Options", "DENY")}},
		handler: begunAndRefused,
		steps:   inPlace,
	},
	{
		name:    "a refusal in the place of an answer, under an error middleware",
		why:     "the same where a claim waits for the middleware that renders errors",
		needs:   Features{OuterErrors: true},
		noBare:  true,
		app:     App{Errors: true, Outer: []adapter.Field{field("X-Frame-Options", "DENY")}},
		handler: begunAndRefused,
		steps:   inPlace,
	},
	{
		name: "an error rendered further out",
		why: "what a middleware further out renders of an error is what is stored, unless it is a failure; the " +
			"error reaches it, and is rendered once",
		needs:   Features{OuterErrors: true},
		app:     App{Errors: true},
		policy:  core.ClientKey(),
		handler: fails,
		steps:   failures,
	},
	{
		name: "an error rendered further out, unseen",
		why: "without Finish an error may be rendered at the guard and stored, or be a failure that is released; but a duplicate " +
			"never gets another answer than the first",
		needs:  Features{OuterErrors: true},
		app:    App{Errors: true, WithoutFinish: true},
		loose:  true,
		noBare: true,
		policy: core.ClientKey(),
		handler: func(h *probe, c Call, n int) error {
			return c.Fail(422, "no stock")
		},
		steps: []step{
			ask{chosen(posted("/orders", order)), failed(422), ""},
			then(func(s *env) {
				s.Helper()
				first := s.firsts[0]
				sendUnchecked{chosen(posted("/orders", order))}.do(s)
				again := s.firsts[1]
				sameMessage(s, "the second answer", first, again, core.ReplayedHeader)
				if ran := s.probe.count() == 2; ran == (again.get(core.ReplayedHeader) == "true") {
					s.Errorf("%d executions, and the second answer is %v", s.probe.count(), again)
				}
			}),
		},
	},
	{
		name:    "a panic",
		why:     "a panic releases the run, and the recovery middleware in front writes its answer to the writer that it knows",
		ownText: true,
		handler: func(h *probe, c Call, n int) error {
			if n == 1 {
				c.SetHeader("X-Before", "1")
				panic("adaptertest: the handler panics")
			}
			return receipt(h, c, n)
		},
		steps: []step{
			ask{anOrder, failed(500), ""},
			ask{anOrder, created, ""},
			ask{anOrder, replayed, ""},
			observed(core.Released),
		},
	},
}

// reported is the answer to the first execution of firstRefused.
var reported = want{status: 409, fields: []adapter.Field{
	field("Content-Type", "application/problem+json"), field("Cache-Control", "no-store"),
	field(core.RefusedHeader, "in_progress"), field("Retry-After", "1"),
}}

// firstRefused is refused by something further in at its first execution.
func firstRefused(h *probe, c Call, n int) error {
	if n == 1 {
		return c.Report(fmt.Errorf("pay: %w", core.NewRefusal(codes.InProgress, nil)))
	}
	return receipt(h, c, n)
}

// begunAndRefused has said something of its answer before it is refused.
func begunAndRefused(h *probe, c Call, n int) error {
	if n == 1 {
		c.SetHeader("Content-Encoding", "gzip")
		c.SetHeader("Etag", `"1"`)
		c.SetHeader("X-Frame-Options", "SAMEORIGIN")
	}
	return firstRefused(h, c, n)
}

var inPlace = []step{
	ask{anOrder, want{status: 409, absent: []string{"Content-Encoding", "Etag"},
		fields: append(reported.fields, field("X-Frame-Options", "DENY"))}, ""},
	ask{anOrder, created, ""},
	ask{anOrder, replayed, ""},
}

// reportRun answers with what the handler can learn about its run.
func reportRun(h *probe, c Call, n int) error {
	r := c.Run()
	if r.Unprotected() {
		return c.Blob(200, "text/plain", []byte("no run"))
	}
	if n == 1 {
		h.hold()
	}
	inContext := core.RunFrom(c.Context())
	if inContext != r || r.Owner() == (store.Owner{}) {
		h.s.Errorf("the run of the framework's context and that of the request's context differ: %v, %v", r, inContext)
	}
	return c.Blob(200, "text/plain", fmt.Appendf(nil, "attempt %d, takeover %t, key %s", r.Attempt(), r.Takeover(), r.Key().Raw()))
}

// charges answers with what it has got of the attempt before it. The first attempt fails after a step.
func charges(h *probe, c Call, n int) error {
	ran := false
	charge, err := core.Step(c.Context(), "charge", func(ctx context.Context) (string, error) {
		ran = true
		return core.RunFrom(ctx).Derive("bank/charge")
	})
	key, derr := c.Run().Derive("bank/charge")
	if err := errors.Join(err, derr); err != nil {
		h.s.Errorf("a step in the handler: %v", err)
	}
	return c.Blob([]int{502, 201}[n-1], "text/plain",
		fmt.Appendf(nil, "attempt %d, charged %t, under the same key %t", c.Run().Attempt(), ran, charge == key))
}

var ok = want{status: 200}

// runCases: a run, its lease, and what becomes of it when somebody leaves.
var runCases = []testCase{
	{
		name:    "the run in the handler",
		why:     "attempt, owner, key and \"is this a takeover\" from the context, in each framework's own way",
		handler: reportRun,
		noBare:  true,
		steps: []step{
			begin{"first", anOrder},
			resume(1),
			await{"first", ok},
		},
	},
	{
		name: "steps in the handler",
		why: "what a step has done in an attempt that failed is not done again, and calls downstream have the same keys, with the " +
			"context and the run as each framework hands them on",
		handler: charges,
		noBare:  true,
		config: func(c *core.Config) {
			c.Secrets = []core.Secret{{Name: "s1", Key: []byte("0123456789abcdef0123456789abcdef")}}
		},
		steps: []step{
			ask{anOrder, want{status: 502, body: "attempt 1, charged true, under the same key true"}, ""},
			ask{anOrder, want{status: 201, body: "attempt 2, charged false, under the same key true"}, ""},
			ask{anOrder, replayed, ""},
		},
	},
	{
		name: "no run in the handler",
		why:  "a handler that runs without a claim must not be told of one, but why the guard has let the request pass",
		routes: []route{{method: "GET", policy: new(core.Policy)}, {pattern: "/open", unguarded: true},
			{policy: &core.Policy{Key: core.Header(core.Optional)}}},
		handler: func(h *probe, c Call, n int) error {
			why := codes.NoRun
			if n == 3 {
				why = codes.KeyMissing
			}
			if _, err := core.RequireRun(c.Context()); h.s != nil && !errors.Is(err, why) {
				h.s.Errorf("RequireRun in request %d: %v, want %v", n, err, why)
			}
			return reportRun(h, c, n)
		},
		steps: []step{
			ask{request{method: "GET"}, want{status: 200, kind: passed}, ""},
			ask{request{target: "/open", body: order}, want{status: 200, kind: passed}, ""},
			ask{anOrder, want{status: 200, kind: passed}, ""},
		},
	},
	{
		name:     "the client leaves",
		why:      "a run goes on when its client leaves, and its result is stored for the retry",
		incoming: true,
		handler: func(h *probe, c Call, n int) error {
			h.hold()
			if err := c.Context().Err(); err != nil {
				h.s.Errorf("the run has ended with its client: %v", err)
			}
			return receipt(h, c, n)
		},
		noBare: true,
		steps: []step{
			begin{"first", anOrder},
			leave{"first"},
			resume(1),
			awaitRuns{},
			ask{anOrder, want{status: 201, kind: answered, fields: []adapter.Field{field(core.ReplayedHeader, "true")}}, ""},
			executions(1),
			observed(core.Completed),
		},
	},
	halfClosed,
}

// halfClosed is a client that sends its request and closes its side.
var halfClosed = testCase{
	name: "a half-closed connection",
	why: "RFC 9112, section 9.6: a client may close its side after its last request, and still " +
		"gets the answer; to net/http it has left",
	handler: held,
	steps: []step{
		begin{"first", anOrder},
		then(func(s *env) {
			s.Helper()
			if err := s.pending["first"].Conn.(*net.TCPConn).CloseWrite(); err != nil {
				s.Fatalf("%v", err)
			}
		}),
		resume(1),
		await{"first", created},
		ask{anOrder, replayed, ""},
	},
}

// waitCases: duplicates that wait, and crowds.
var waitCases = []testCase{
	{
		name:   "200 at once, waiting",
		why:    "of identical requests at the same time one runs, and under Wait all get its answer",
		policy: core.Policy{Duplicate: core.Wait(patience)},
		steps: []step{
			atOnce{request: anOrder, size: 200},
			executions(1),
		},
	},
}

// mountCases: where a guard is mounted.
var mountCases = []testCase{
	{
		name:    "mounted on the application, with parameters",
		why:     "the key holds the route's pattern, also where the guard stands in front of the routes",
		needs:   Features{GlobalRoutes: true},
		global:  true,
		routes:  []route{{pattern: "/orders/:id/pay"}},
		handler: echoParam,
		steps: []step{
			ask{request{target: "/orders/1/pay", body: order}, created, ""},
			ask{request{target: "/orders/2/pay", body: order}, created, ""},
			ask{request{target: "/orders/2/pay", body: order}, replayed, ""},
		},
	},
	{
		name:    "mounted on a group",
		why:     "the key holds the whole pattern, with the prefix of the group",
		needs:   Features{GroupRoutes: true},
		global:  true,
		app:     App{Group: "/api/v1"},
		routes:  []route{{pattern: "/api/v1/orders/:id/pay"}},
		handler: echoParam,
		steps: []step{
			ask{request{target: "/api/v1/orders/1/pay", body: order}, created, ""},
			ask{request{target: "/api/v1/orders/2/pay", body: order}, created, ""},
			ask{request{target: "/api/v1/orders/2/pay", body: order}, replayed, ""},
		},
	},
	{
		name: "below two prefixes",
		why: "a prefix that a mux has stripped belongs to the route: the same routes of two versions, or of two tenants, are two " +
			"operations, and events do not show the prefix, which may tell tenants apart",
		needs:   Features{Prefixes: true},
		app:     App{prefixes: []string{"/secret-1", "/secret-2"}},
		policy:  clientKey,
		routes:  []route{{pattern: "/orders/:id/pay"}},
		handler: echoParam,
		noBare:  true,
		steps: []step{
			ask{keyedFor("/secret-1/orders/7/pay", "k-1"), created, ""},
			ask{keyedFor("/secret-1/orders/7/pay", "k-1"), replayed, ""},
			ask{keyedFor("/secret-2/orders/7/pay", "k-1"), created, ""},
			ask{keyedFor("/secret-2/orders/7/pay", "k-1"), replayed, ""},
			ask{keyedFor("/secret-2/orders/8/pay", "k-1"), refused(codes.KeyReused), ""},
			then(noRawPaths),
		},
	},
	{
		name:    "no route",
		why:     "requests that match no route have keys of their own: their pattern is empty, and would make them one operation",
		global:  true,
		ownText: true,
		steps: []step{
			ask{request{target: "/a", body: order}, want{status: 404, kind: foreign}, ""},
			ask{request{target: "/b", body: order}, want{status: 404, kind: foreign, absent: []string{core.ReplayedHeader}}, ""},
			then(func(s *env) {
				s.store.mu.Lock()
				defer s.store.mu.Unlock()
				if n := len(s.store.claims); n == 2 && s.store.claims[0] == s.store.claims[1] {
					s.Errorf("two paths have one key: %q", s.store.claims[0].key)
				}
			}),
			executions(0),
		},
	},
}
