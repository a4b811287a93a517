package adaptertest

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// frontCases: what a middleware in front sees of a request once the guard is done with it.
var frontCases = []testCase{
	{
		name: "the body, seen from in front",
		why: "a guard lends its memory to the request until Serve returns: whoever looks at the body then, as access logs do, " +
			"finds it as it was sent, or read, and never what the guard used in between, which is another request's by then",
		after: func(h *probe, a Outcome) {
			defer func() {
				if v := recover(); v != nil {
					h.said <- fmt.Sprint("a panic: ", v)
				}
			}()
			left, err := io.ReadAll(a.Body)
			if err == nil {
				err = a.Body.Close()
			}
			if text := string(left); err != nil || text != "" && text != order {
				h.said <- fmt.Sprintf("%q, %v", text, err)
				return
			}
			h.said <- "its own"
		},
		steps: []step{
			ask{anOrder, created, ""},
			handlerSays("its own"),
			ask{anOrder, replayed, ""},
			handlerSays("its own"),
			ask{request{body: order, chunked: true}, replayed, ""},
			handlerSays("its own"),
			ask{request{user: "-", body: order}, refused(codes.UserMissing), ""},
			handlerSays("its own"),
		},
	},
	{
		name: "the header, seen from in front",
		why: "a guard lends its memory to the response's header no longer than the answer takes: whoever looks at the header " +
			"then finds what the client gets, whether or not it was changed too late",
		loose: true, // to Fiber no change is too late
		handler: func(h *probe, c Call, n int) error {
			c.SetHeader("X-Receipt", "in time")
			err := receipt(h, c, n)
			c.SetHeader("X-Receipt", "late")
			return err
		},
		after: func(h *probe, a Outcome) { h.said <- a.Header("X-Receipt") },
		steps: []step{then(func(s *env) {
			s.Helper()
			for n := range 20 { // what a guard uses again it must have used before
				once := posted("", fmt.Sprintf(`{"n":%d}`, n))
				ask{once, created, ""}.do(s)
				receiptInFront(s)
				ask{once, replayed, ""}.do(s)
				receiptInFront(s)
			}
		})},
	},
	{
		name: "what the handler leaves in the request, seen from in front",
		why: "without a guard whoever stands in front, an access log say, finds the form that the handler has parsed and the values " +
			"that it has put into the request's context; the run, and its end, are not theirs to see",
		loose: true,
		handler: func(h *probe, c Call, n int) error {
			var in struct {
				Sku string `form:"sku"`
			}
			if err := c.Bind(&in); err != nil {
				return err
			}
			c.SetContext(context.WithValue(c.Context(), leftKey{}, n))
			return receipt(h, c, n)
		},
		after: func(h *probe, a Outcome) {
			within, cancel := context.WithCancel(a.Context)
			defer cancel()
			h.said <- fmt.Sprintf("%s, %v, %v, %v", a.Form("sku"), a.Context.Value(leftKey{}),
				core.RunFrom(a.Context), context.Cause(within))
		},
		steps: []step{
			ask{form("sku=A-1"), created, ""},
			handlerSays("A-1, 1, <nil>, <nil>"),
		},
	},
	{
		name: "two guards under an error middleware",
		why: "guards within each other that wait for one renderer store what it has rendered, each without the fields that were " +
			"there before: what one leaves out is not the other's to miss, or to have twice",
		needs:  Features{OuterErrors: true},
		app:    App{Errors: true, Outer: []adapter.Field{field("Link", "</help>; rel=help"), field("X-Frame-Options", "DENY")}},
		global: true,
		policy: core.Policy{Key: core.Header(core.Optional, core.Named("X-Request-Key"))},
		routes: []route{{policy: &clientKey}},
		handler: func(_ *probe, c Call, _ int) error {
			c.AddHeader("Warning", "199 - a")
			c.AddHeader("Warning", "199 - b")
			c.SetHeader("X-Reason", "no stock")
			return c.Fail(422, "no stock")
		},
		steps: []step{
			ask{requestKeyed("r-1", "k-1"), failed(422), ""},
			ask{requestKeyed("r-1", "k-1"), failedAgain(422), ""}, // by the outer guard
			ask{keyed("k-1"), failedAgain(422), ""},               // by the inner one
		},
	},
	{
		name:    "no answer at all, under an error middleware",
		why:     "a guard that waits for a renderer which has nothing to render stores the empty answer that went out",
		needs:   Features{OuterErrors: true},
		app:     App{Errors: true},
		handler: func(*probe, Call, int) error { return nil },
		steps: []step{
			ask{anOrder, want{status: 200}, ""},
			ask{anOrder, want{status: 200, kind: replay}, ""},
		},
	},
}

type leftKey struct{}

// requestKeyed has a key for each of two guards.
func requestKeyed(outer, inner string) request {
	r := keyed(inner)
	r.fields = []adapter.Field{field("X-Request-Key", outer)}
	return r
}

// receiptInFront compares what a middleware in front has seen with what the client got.
func receiptInFront(s *env) {
	s.Helper()
	select {
	case seen := <-s.probe.said:
		if sent := s.firsts[len(s.firsts)-1].get("X-Receipt"); seen != sent {
			s.Errorf("in front X-Receipt is %q; the client has got %q", seen, sent)
		}
	case <-time.After(patience):
		s.Fatalf("nobody in front has seen the answer")
	}
}
