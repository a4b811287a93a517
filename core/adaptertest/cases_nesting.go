package adaptertest

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

var (
	// stock is a policy that finds its key in a header field of its own.
	stock = core.Policy{Key: core.Header(core.Required, core.Named("X-Stock-Key"))}
	// keptFailures keeps also what has failed.
	keptFailures = core.Policy{Key: core.Header(core.Required), Record: core.Record{OnFailure: core.Keep}}
	twoRoutes    = []route{{policy: &clientKey}, {pattern: "/stock", policy: &clientKey}}
)

// chargedAll answers with a receipt, whatever the route within has answered.
func chargedAll(h *probe, c Call, n int) error {
	inner, err := c.Within("/stock", "")
	if err != nil {
		return err
	}
	if h.s != nil && inner.Get(core.RefusedHeader) != string(codes.KeyMissing) {
		h.s.Errorf("the inner route has answered %d %q", inner.Status, inner.Header)
	}
	return receipt(h, c, n)
}

// passedOn answers with what the route within has answered, header and all.
func passedOn(_ *probe, c Call, _ int) error {
	inner, err := c.Within("/stock", "")
	if err != nil {
		return err
	}
	c.SetHeader(core.RefusedHeader, inner.Get(core.RefusedHeader))
	return c.Blob(inner.Status, inner.Get("Content-Type"), inner.Body)
}

// nestingCases: guards within each other, and what one makes of another's refusal.
var nestingCases = []testCase{
	{
		name: "an inner refusal, dealt with",
		why: "a guarded route that is called in process with this request's context, and refuses, has answered like any other: what the " +
			"outer handler then answers is the outcome of its run, which has charged, and is kept",
		routes:  twoRoutes,
		handler: chargedAll,
		loose:   true,
		noBare:  true,
		steps: []step{
			ask{keyed("k-1"), created, ""},
			ask{keyed("k-1"), replayed, ""},
			executions(1),
			observed(core.Completed),
		},
	},
	{
		name: "an inner refusal, passed on",
		why: "an answer that has Idempotency-Refused is a failure, by whomever: it is released, also where a " +
			"400 would be kept, and the next try runs",
		routes:  twoRoutes,
		handler: passedOn,
		loose:   true,
		noBare:  true,
		steps: []step{
			ask{keyed("k-1"), want{status: 400, fields: []adapter.Field{field(core.RefusedHeader, "key_missing")}}, ""},
			ask{keyed("k-1"), want{status: 400, fields: []adapter.Field{field(core.RefusedHeader, "key_missing")}}, ""},
			executions(2),
			then(func(s *env) {
				s.Helper()
				s.store.mu.Lock()
				defer s.store.mu.Unlock()
				for _, e := range s.events {
					if e.Kind == core.Completed || e.Kind == core.Released && !e.Failed {
						s.Errorf("a refusal that was passed on is %q, failed: %t", e.Kind, e.Failed)
					}
				}
			}),
		},
	},
	{
		name:   "guards within each other",
		why:    "what an inner guard refuses is not the outer one's to keep: with the right key the operation runs",
		global: true,
		policy: keptFailures,
		routes: []route{{policy: &stock}},
		loose:  true,
		steps: []step{
			ask{keyed("k-1"), refused(codes.KeyMissing), ""},
			ask{stockKeyed("k-1", `"a"`), created, ""},
			ask{stockKeyed("k-1", `"a"`), replayed, ""},
			executions(1),
		},
	},
	{
		name: "guards within each other that echo their keys",
		why: "EchoKey answers with the key of the client that asks: what a guard further in has echoed, to another " +
			"request, is not stored by the outer one, whose replay has its own key, once",
		global: true,
		policy: core.Policy{Key: core.Header(core.Required, core.Named("X-Stock-Key"), core.EchoKey())},
		routes: []route{{policy: new(core.ClientKey(core.EchoKey()))}},
		loose:  true,
		noBare: true,
		steps: []step{
			ask{stockKeyed("k-1", "a"), want{status: 201, fields: echoes("k-1", "a")}, ""},
			ask{stockKeyed("k-2", "a"), want{status: 201, kind: replay, fields: echoes("", "a"), absent: echoing,
				other: echoing}, ""},
			ask{stockKeyed("k-1", "b"), want{status: 201, kind: answered, fields: echoes("k-1", "b")}, ""},
			ask{stockKeyed("k-2", "b"), want{status: 201, kind: answered, fields: echoes("", "b"), absent: echoing}, ""},
			executions(1),
		},
	},
	{
		name:   "a status, and an error behind it, within two guards",
		why:    "a failure stays one, and is released, whether the framework takes the status for the answer or what is made of the error",
		needs:  Features{OuterErrors: true},
		app:    App{Errors: true},
		global: true,
		policy: core.Policy{Key: stock.Key},
		routes: []route{{policy: &clientKey}},
		handler: func(_ *probe, c Call, _ int) error {
			return cmp.Or(c.NoContent(503), c.Fail(503, "no stock"))
		},
		loose:  true,
		noBare: true,
		steps: []step{
			ask{stockKeyed("k-1", "a"), failed(503), ""},
			ask{stockKeyed("k-1", "a"), failed(503), ""},
			executions(2),
		},
	},
}

func stockKeyed(key, stock string) request {
	r := keyed(key)
	r.fields = []adapter.Field{field("X-Stock-Key", stock)}
	return r
}

var echoing = []string{core.DefaultKeyHeader}

// echoes are the fields that the guards of a request of stockKeyed add; key is "" if the inner one has not been asked.
func echoes(key, stock string) []adapter.Field {
	fields := []adapter.Field{field("X-Stock-Key", stock)}
	if key != "" {
		fields = append(fields, field(core.DefaultKeyHeader, key))
	}
	return fields
}

func hosted(host, target string) request {
	return request{host: host, target: target, keys: []string{"k-1"}, body: order}
}

// hostCases: who is asked.
var hostCases = []testCase{
	{
		name: "the host",
		why: "tenants by host: Request.Host is the host that was asked for, in lower case and with the port as sent, on every framework; " +
			"a target in absolute form overrides the Host field (RFC 9112, section 3.2.2), and HTTP/1.0 need not " +
			"have one; Header(\"Host\") is the same",
		policy: core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
			first, lines := r.Headers.Header("Host", 0)
			second, _ := r.Headers.Header("Host", 1)
			return fmt.Sprintf("%s|%s|%d|%s", r.Host, first, lines, second), nil
		})},
		handler: func(_ *probe, c Call, _ int) error { return c.Blob(201, "text/plain", []byte(c.Run().Key().Raw())) },
		loose:   true,
		noBare:  true,
		steps: []step{
			ask{hosted("", ""), keyOf("shop.test|shop.test|1|"), ""},
			ask{hosted("Shop.Test:8080", ""), keyOf("shop.test:8080|shop.test:8080|1|"), ""},
			ask{hosted("127.0.0.1", ""), keyOf("127.0.0.1|127.0.0.1|1|"), ""},
			ask{hosted("[2001:DB8::1]:80", ""), keyOf("%5B2001:db8::1%5D:80%7C%5B2001:db8::1%5D:80%7C1%7C"), ""},
			ask{hosted("shop.test", "http://Other.Test:81/orders"), keyOf("other.test:81|other.test:81|1|"), ""},
			ask{hosted("-", ""), keyOf("||0|"), ""},
		},
	},
}

// keyOf is an answer that holds the key under which the request ran.
func keyOf(clientKey string) want {
	return want{status: 201, body: "idem:U=aliceM=POST%20/ordersK=" + strings.ReplaceAll(clientKey, "|", "%7C")}
}

// eventCases: what observers are told.
var eventCases = []testCase{
	{
		name: "routes in events",
		why: "a path holds what tells people apart: events show patterns, or where the guard is mounted, also where it stands in " +
			"front of the routes and no route has matched",
		global:  true,
		routes:  []route{{pattern: "/orders/:id/pay"}},
		handler: echoParam,
		loose:   true,
		steps: []step{
			ask{request{target: "/orders/secret-7/pay", body: order}, created, ""},
			ask{request{target: "/orders/secret-7/pay", body: order}, replayed, ""},
			ask{request{target: "/orders/secret-7/pay", user: "-", body: order}, refused(codes.UserMissing), ""},
			sendUnchecked{request{target: "/nowhere/secret-8", body: order}},
			then(noRawPaths),
		},
	},
	{
		name:    "routes in events, by group",
		why:     "the same for a guard that is mounted on a group",
		global:  true,
		app:     App{Group: "/api"},
		routes:  []route{{pattern: "/api/orders/:id/pay"}},
		handler: echoParam,
		loose:   true,
		steps: []step{
			ask{request{target: "/api/orders/secret-7/pay", body: order}, created, ""},
			sendUnchecked{request{target: "/api/nowhere/secret-8", body: order}},
			then(noRawPaths),
		},
	},
}

func noRawPaths(s *env) {
	s.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if len(s.events) == 0 {
		s.Errorf("there are no events")
	}
	for _, e := range s.events {
		if strings.Contains(e.Route, "secret") || !strings.HasPrefix(e.Route, "POST ") {
			s.Errorf("the route of the event %q is %q", e.Kind, e.Route)
		}
	}
}

// whatCameOut has a handler's error, and whether it is a replay, told to the case.
func whatCameOut(h *probe, a Outcome) {
	text := "no error"
	if a.Err != nil {
		text = a.Err.Error()
	}
	h.said <- fmt.Sprintf("%s, %t", text, a.Replayed)
}

// outcomeCases: what a middleware in front learns of the outcome.
var outcomeCases = []testCase{
	{
		name:  "replays, seen from in front",
		why:   "a middleware in front can tell replays, in the framework's own way; a refusal is none",
		after: whatCameOut,
		loose: true,
		steps: []step{
			ask{anOrder, created, ""},
			handlerSays("no error, false"),
			ask{anOrder, replayed, ""},
			handlerSays("no error, true"),
			ask{request{user: "-", body: order}, refused(codes.UserMissing), ""},
			handlerSays("no error, false"),
		},
	},
	{
		name: "an error, seen from in front",
		why: "access logs and error reports stand in front, and must see the error of a guarded handler; it is rendered once; " +
			"a replay has none, for there was none",
		needs:   Features{OuterErrors: true},
		app:     App{Errors: true},
		policy:  clientKey,
		handler: firstFails,
		after: func(h *probe, a Outcome) {
			if a.Err != nil && strings.Contains(a.Err.Error(), "no stock") {
				a.Err = errors.New("no stock") // frameworks add to it
			}
			whatCameOut(h, a)
		},
		loose: true,
		steps: []step{
			ask{keyedFor("/orders?status=422", "k-1"), failed(422), ""},
			handlerSays("no stock, false"),
			ask{keyedFor("/orders?status=422", "k-1"), failedAgain(422), ""},
			handlerSays("no error, true"),
			ask{keyedFor("/orders?status=503", "k-2"), created, ""},
			handlerSays("no error, false"),
		},
	},
}

func keyedFor(target, key string) request {
	r := keyed(key)
	r.target = target
	return r
}

// limitCases: timeouts that let handlers run on.
var limitCases = []testCase{
	{
		name: "a timeout in front",
		why: "a guard inside of a timeout that lets its handler run on knows when the handler ends: until then duplicates are refused, " +
			"and then they get its answer",
		needs:   Features{TimeLimit: true},
		policy:  clientKey,
		handler: held,
		loose:   true,
		noBare:  true,
		steps: []step{
			// Without a body: what is late must not be cut off in the middle of it.
			begin{"first", request{keys: []string{"k-1"}, fields: []adapter.Field{field("X-Time-Limit", "30ms")}}},
			await{"first", want{status: 503, kind: foreign}},
			ask{request{keys: []string{"k-1"}}, refused(codes.InProgress), ""},
			ask{request{keys: []string{"k-1"}}, refused(codes.InProgress), ""},
			resume(1),
			awaitRuns{},
			ask{request{keys: []string{"k-1"}},
				want{status: 201, kind: answered, fields: []adapter.Field{field(core.ReplayedHeader, "true")}}, ""},
			executions(1),
			observed(core.Completed),
		},
	},
	{
		name: "a timeout in front of a handler that gives up",
		why: "who gives up because a timeout in front has ended its context has failed, whoever of the " +
			"two has answered: the next try runs, and gets no empty replay",
		needs:   Features{TimeLimit: true, ContextEnds: true},
		policy:  clientKey,
		handler: givesUp(func(Call) error { return nil }),
		loose:   true,
		noBare:  true,
		steps: []step{
			begin{"first", request{keys: []string{"k-1"}, fields: []adapter.Field{field("X-Time-Limit", "30ms")}}},
			then(func(s *env) {
				s.Helper()
				if got, err := s.pending["first"].receive("POST"); err != nil || got.status != 503 {
					s.Errorf("%v (%v)", got, err)
				}
			}),
			awaitRuns{},
			observed(core.Released),
			ask{request{keys: []string{"k-1"}}, created, ""},
			ask{request{keys: []string{"k-1"}}, replayed, ""},
			executions(2),
		},
	},
}
