package core_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// call is an exchange without a framework: what is asked, what the handler does, and
// what was answered.
type call struct {
	method, route, query string
	params               []adapter.Pair
	contentType          string
	encoding             string
	remote               string
	header               http.Header
	body                 string
	bodyErr              error
	preforked            bool

	handler func(ctx context.Context) adapter.Capture
	err     error // that Run returns
	gone    error // what comes of sending something; nil: it arrives

	ran       int
	passed    int
	delivered int
	response  *core.Response // what the client has got
	held      *core.Response
	pending   adapter.Pending
}

func (c *call) Header(name string, i int) (string, int) {
	lines := c.header[name]
	if i >= len(lines) {
		return "", len(lines)
	}
	return lines[i], len(lines)
}

func (c *call) Describe(r *core.Request) {
	r.Method, r.Route, r.RawQuery = c.method, c.route, c.query
	r.PathParams = append(r.PathParams, c.params...)
	r.ContentType, r.ContentEncoding, r.RemoteAddr = c.contentType, c.encoding, c.remote
	r.Native, r.Preforked = c, c.preforked
}

func (c *call) ReadBody(limit int64) ([]byte, error) {
	if c.bodyErr != nil {
		return nil, c.bodyErr
	}
	if int64(len(c.body)) > limit {
		return nil, adapter.ErrBodyTooLarge
	}
	return []byte(c.body), nil
}

func (c *call) Answer(r *core.Response) error {
	c.response = clone(r)
	return c.gone
}

func (c *call) Pass(ctx context.Context) error {
	c.passed++
	c.response = clone(c.handler(ctx).Response)
	return c.err
}

func (c *call) Run(ctx context.Context, limit int) (adapter.Capture, error) {
	c.ran++
	got := c.handler(ctx)
	if got.Response != nil {
		c.held = clone(got.Response)
	}
	return got, c.err
}

func (c *call) Deliver(fields []core.Field) error {
	c.delivered++
	c.response = c.held
	if len(fields) > 0 {
		c.response = clone(c.held)
		c.response.Header = append(c.response.Header, fields...)
	}
	return c.gone
}

func (c *call) Defer(p adapter.Pending) { c.pending = p }

func clone(r *core.Response) *core.Response {
	if r == nil {
		return nil
	}
	return &core.Response{Status: r.Status, Header: slices.Clone(r.Header), Body: slices.Clone(r.Body)}
}

func (c *call) code() string {
	if c.response == nil || c.response.Get("Content-Type") != "application/problem+json" {
		return ""
	}
	_, rest, _ := strings.Cut(string(c.response.Body), `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

func (c *call) replayed() bool { return c.response.Get(core.ReplayedHeader) == "true" }

// post is an order of alice's, answered with 201 and, if there is a ledger, a body that counts the executions.
func post(body string, ledger *atomic.Int64) *call {
	return &call{
		method: "POST", route: "/orders", contentType: "application/json", body: body,
		header: http.Header{"X-User": {"alice"}},
		handler: func(context.Context) adapter.Capture {
			if ledger == nil {
				return answer(201, "{}")
			}
			return answer(201, fmt.Sprintf(`{"order":%d}`, ledger.Add(1)))
		},
	}
}

func answer(status int, body string, more ...core.Field) adapter.Capture {
	return adapter.Capture{Response: &core.Response{
		Status: status,
		Header: append([]core.Field{{Name: "Content-Type", Value: "application/json"}}, more...),
		Body:   []byte(body),
	}}
}

// Handlers.

func handlerOf(status int) func(context.Context) adapter.Capture { return answering(status, "") }

func answering(status int, body string) func(context.Context) adapter.Capture {
	return func(context.Context) adapter.Capture { return answer(status, body) }
}

func slowly(takes time.Duration, status int, body string) func(context.Context) adapter.Capture {
	return func(context.Context) adapter.Capture { time.Sleep(takes); return answer(status, body) }
}

func deferring(context.Context) adapter.Capture { return adapter.Capture{Ending: adapter.Deferred} }

// abandoning is a handler that abandons its run.
func abandoning(ctx context.Context) adapter.Capture {
	core.RunFrom(ctx).Abandon()
	return answer(500, "")
}

func panicking(context.Context) adapter.Capture { panic("boom") }

func unrendered(context.Context) adapter.Capture { return adapter.Capture{Ending: adapter.Unrendered} }

// refusing is a handler whose answer is the refusal of somebody else.
func refusing(status int) func(context.Context) adapter.Capture {
	return func(context.Context) adapter.Capture {
		return answer(status, "", core.Field{Name: core.RefusedHeader, Value: "in_progress"})
	}
}

// finding is the recovery of who always finds this.
func finding(v core.Verdict) core.Recovery {
	return core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) { return v, nil })
}

func (c *call) doing(handler func(context.Context) adapter.Capture) *call {
	c.handler = handler
	return c
}

// after has something done before the handler.
func (c *call) after(before func(context.Context)) *call {
	handler := c.handler
	return c.doing(func(ctx context.Context) adapter.Capture { before(ctx); return handler(ctx) })
}

func (c *call) withKey(key ...string) *call {
	c.header[core.DefaultKeyHeader] = key
	return c
}

func serve(t testing.TB, g *core.Guard, c *call) *call {
	t.Helper()
	return serveFor(t, context.Background(), g, c)
}

func serveFor(t testing.TB, ctx context.Context, g *core.Guard, c *call) *call {
	t.Helper()
	if err := g.Serve(ctx, c); err != nil {
		t.Errorf("Serve: %v", err) // not Fatal: it is also called from goroutines
	}
	return c
}

// outcome serves c and says what becomes of it: "replay", "attempt 1", or the code of a refusal.
func outcome(t testing.TB, g *core.Guard, c *call) (met string) {
	t.Helper()
	c.after(func(ctx context.Context) { met = fmt.Sprint("attempt ", core.RunFrom(ctx).Attempt()) })
	if serve(t, g, c); c.replayed() {
		return "replay"
	}
	return cmp.Or(c.code(), met)
}

var byUser = core.UserFromHeader("X-User")

var errTruncated = io.ErrUnexpectedEOF

// events is an observer that remembers.
type events struct {
	mu  sync.Mutex
	all []core.Event
}

func (e *events) add(_ context.Context, ev core.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) kinds() (kinds []core.Kind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		kinds = append(kinds, ev.Kind)
	}
	return kinds
}

// last is the event that came last.
func (e *events) last() core.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[len(e.all)-1]
}

// bubble is a subtest on synctest's clock.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// finish hands in the answer that was deferred.
func (c *call) finish(t testing.TB, captured adapter.Capture) {
	t.Helper()
	c.held = captured.Response
	if err := c.pending.Finish(&captured); err != nil {
		t.Errorf("Finish: %v", err)
	}
}

// over is a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// serveUntilPanic is for a call on whose way something may panic.
func serveUntilPanic(g *core.Guard, c *call) (panicked any) {
	defer func() { panicked = recover() }()
	_ = g.Serve(context.Background(), c)
	return nil
}
