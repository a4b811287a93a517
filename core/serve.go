package core

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// Serve carries out the operation behind x at most once: it runs the handler, replays, waits or
// refuses. It is what an adapter calls. ctx is the request's context. The error is that of the
// framework's handler, or of writing the answer. Requests with a safe method (RFC 9110, section 9.2.1; QUERY: RFC 10008)
// pass untouched.
func (g *Guard) Serve(ctx context.Context, x adapter.Exchange) error {
	f := httpOperations.Get().(*httpOperation)
	f.x = x
	fill(ctx, &f.req, x)

	var err error
	if isSafe(f.req.Method) {
		err = x.Pass(ctx)
	} else {
		f.guard = g.of(&f.req)
		if f.guard == g {
			g.noticeIgnoredKey(ctx, &f.req)
		}
		err = f.serve(ctx)
	}
	// A panic leaves f to the garbage collector: the handler may have kept something of it.
	f.reset()
	httpOperations.Put(f)
	return err
}

// serve does what the guard decides about the request.
func (f *httpOperation) serve(ctx context.Context) error {
	g, id := f.guard, f.identify()
	d := g.decide(ctx, &id)
	switch d.action {
	case toRun:
		return f.run(d.run)
	case toPass:
		return f.x.Pass(g.passing(ctx, &id, &d))
	case toReplay:
		if d.refusal, d.cause = f.replayable(ctx, d.grant); d.refusal == nil {
			err := f.x.Answer(&f.resp)
			g.observe(ctx, Event{Kind: Replayed, Route: id.route, Key: id.key, ID: d.grant.ID, Remark: d.grant.Remark,
				Status: f.resp.Status, Waited: d.waited, Err: d.cause})
			return err
		}
	}
	r := g.refuse(ctx, &id, &d)
	if r.Code == codes.KeyReused {
		r.Stored = f.stored(ctx, d.grant)
	}
	return f.refuse(ctx, r)
}

// httpOperation is an operation that is an [adapter.Exchange]. They are pooled; reset makes sure that none
// carries anything of one request to the next. (The bytes of scratch stay, but it is
// only ever appended to from its start, and handed out up to its length.)
type httpOperation struct {
	guard   *Guard
	x       adapter.Exchange
	req     Request
	resp    Response
	user    User           // of the request, once it has been found
	scratch []byte         // the key under construction, then the result to be stored
	echo    [2]Field       // of EchoKey; the first is empty if nothing is to be echoed
	counted []adapter.Pair // the header fields that count as parameters
	done    store.Grant
}

var httpOperations = sync.Pool{New: func() any { return new(httpOperation) }}

// maxScratch is the largest buffer that a pooled httpOperation keeps.
const maxScratch = 64 << 10

func (f *httpOperation) reset() {
	params, fields, scratch, counted := f.req.PathParams, f.resp.Header, f.scratch, f.counted
	clear(params[:cap(params)])
	clear(fields[:cap(fields)])
	clear(counted[:cap(counted)])
	if cap(scratch) > maxScratch {
		scratch = nil
	}
	*f = httpOperation{scratch: scratch[:0], counted: counted[:0]}
	f.req.PathParams, f.resp.Header = params[:0], fields[:0]
}

// run runs the handler under the claim of c, settles the run, and answers; or leaves that to an [adapter.Pending].
func (f *httpOperation) run(c *runContext) error {
	captured, err := f.runHandler(c)
	if captured.Ending == adapter.Deferred {
		f.x.(adapter.Deferrer).Defer(&pending{run: c, x: f.x, echo: f.echo, reported: captured.Err})
		return err
	}
	var derr error
	f.scratch, derr = c.answer(f.x, &f.echo, &captured, f.scratch[:0], func(r *Refusal) error { return f.refuse(c.values, r) })
	return cmp.Or(err, derr)
}

func (f *httpOperation) runHandler(c *runContext) (captured adapter.Capture, err error) {
	returned := false
	defer func() {
		if !returned {
			c.settlePanic(adapter.Unrendered) // a panic or runtime.Goexit, which goes on
		}
	}()
	c.announce()
	if f.echo[0].Name != "" {
		echoes(c, f.echo[0].Name)
	}
	captured, err = f.x.Run(c, f.guard.policy.ResponseLimit)
	c.returned()
	returned = true
	return captured, err
}

// deliver has the exchange deliver, with the fields of EchoKey. A result that was not kept has no expiry.
func deliver(x adapter.Exchange, echo *[2]Field, retention time.Duration) error {
	switch {
	case echo[0].Name == "":
		return x.Deliver(nil)
	case retention <= 0:
		return x.Deliver(echo[:1])
	}
	echo[1] = expires(retention)
	return x.Deliver(echo[:])
}

func expires(in time.Duration) Field {
	return Field{Name: ExpiresHeader, Value: time.Now().Add(in).UTC().Format(http.TimeFormat)}
}

// replayable decodes a stored result into f.resp, or says why it is not replayed. The error is for the observer.
func (f *httpOperation) replayable(ctx context.Context, grant store.Grant) (*Refusal, error) {
	if authorize := f.guard.policy.Authorize; authorize != nil {
		if err := authorize(ctx, &f.req); err != nil {
			return refusalNotAuthorized, err
		}
	}
	decoded := decodeResponse(&f.resp, grant.Result)
	switch {
	case f.guard.ofEvents() && !(decoded && isSuccess(&f.resp)): // its sender is not to come again
		f.resp = Response{Status: http.StatusOK, Header: append(f.resp.Header[:0], Field{Name: ReplayedHeader, Value: "true"})}
	case !decoded:
		return refusalUnavailable, grant.Unopened
	}
	if own := f.guard.policy.Replayed; own != nil {
		if made := own(ctx, &f.req, &f.resp); made != nil {
			replay := *made
			replay.Header = canonical(made.Header) // a copy: f reuses its memory
			setDefault(&replay.Status, f.resp.Status)
			setField(&replay, ReplayedHeader, "true")
			f.resp = replay
		}
	}
	if f.echo[0].Name != "" {
		echoes(ctx, f.echo[0].Name)
		f.resp.Header = append(f.resp.Header, f.echo[0], expires(grant.Remaining))
	}
	return nil, grant.Unopened
}

func (f *httpOperation) refuse(ctx context.Context, r *Refusal) error {
	if r.Code != codes.TokenExpired { // another token is of no use, or this one is still good
		f.req.Expired = ""
	}
	return f.x.Answer(f.guard.response(ctx, r, &f.req))
}

// stored returns the response of the finished run, for Config.Refuse.
func (f *httpOperation) stored(ctx context.Context, grant store.Grant) *Response {
	g := f.guard
	if g.refuses == nil || grant.State != store.Done || g.policy.Authorize != nil && g.policy.Authorize(ctx, &f.req) != nil {
		return nil
	}
	r := new(Response)
	if !decodeResponse(r, grant.Result) {
		return nil
	}
	r.Header = r.Header[:len(r.Header)-1] // it is no replay
	return r
}

// isSafe reports whether a method is safe (RFC 9110, section 9.2.1; QUERY: RFC 10008).
func isSafe(method string) bool {
	return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "TRACE" || method == "QUERY"
}

// isIdempotent reports whether a method that is not safe is idempotent by itself (RFC 9110, section 9.2.2).
func isIdempotent(method string) bool { return method == "PUT" || method == "DELETE" }
