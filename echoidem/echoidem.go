package echoidem

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// New returns middleware that protects the handler behind it with g. It is safe for
// concurrent use, and may be mounted on any number of routes: the route is part of the
// key. Mounted with Echo.Pre it sees no route; the whole path then takes its place.
//
// Mount it in front of middleware that reads bodies. A form that CSRF, KeyAuth or another middleware has
// read counts as it was parsed. Any other body that was read, in whole or in part, is refused: 500
// body_consumed. See [Finish] for chunked bodies.
//
// An error that the handler returns is rendered here, by Echo's HTTPErrorHandler, and then returned, for
// middleware further out that logs or reports it. From then on c.Response() ignores writes, so that the
// error is not rendered twice.
func New(g *core.Guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			x := exchanges.Get().(*exchange)
			x.Start(c.Request())
			x.c, x.next = c, next
			err := g.Serve(c.Request().Context(), x)
			if x.rendered {
				seal(c)
			}
			if x.pending {
				return err // Finish has it
			}
			// After a panic it stays out of the pool, too: somebody may still hold it.
			x.End()
			*x = exchange{}
			exchanges.Put(x)
			return err
		}
	}
}

// Run returns the run that a handler is part of, or nil, which answers like a first attempt.
func Run(c echo.Context) *core.Run { return core.RunFrom(c.Request().Context()) }

// Replayed reports whether the response is a replay, for middleware further out.
func Replayed(c echo.Context) bool { return adapterkit.Replayed(c.Response()) }

// UserFromContext takes the user from the value that authentication middleware has set
// with c.Set(key, value), see [core.UserFromValue].
func UserFromContext(key string) core.UserSource {
	return adapterkit.UserFrom("Echo", func(c echo.Context) any { return c.Get(key) })
}

// exchange is one request and its response. Exchanges are pooled; what the handler may keep is in
// handed, which is not.
type exchange struct {
	adapterkit.Request
	c        echo.Context
	next     echo.HandlerFunc
	response *echo.Response
	below    http.ResponseWriter // that the recorder stands in front of
	recorder *adapterkit.Recorder
	direct   answerWriter // for Answer
	partial  bool         // something was sent before the handler
	status   int          // from before the handler
	finisher *finisher    // nil: no Finish is mounted
	pending  bool         // Finish will complete it
	err      error        // that the handler returned
	rendered bool         // by the guard
}

type handed struct {
	adapterkit.Recorder
	body adapterkit.Body
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchangeOf returns an exchange that runs no handler. It is not pooled.
func exchangeOf(c echo.Context) *exchange {
	x := &exchange{c: c}
	x.Start(c.Request())
	return x
}

func (x *exchange) Describe(r *core.Request) {
	x.Request.Describe(r)
	r.Native = x.c
	describeRoute(x.c, r)
}

func (x *exchange) ReadBody(limit int64) ([]byte, error) {
	body, err := x.Request.ReadBody(limit)
	if e, ok := errors.AsType[*echo.HTTPError](err); ok && e.Code == http.StatusRequestEntityTooLarge {
		return nil, core.ErrBodyTooLarge // by BodyLimit
	}
	return body, err
}

func (x *exchange) Answer(r *core.Response) error {
	if x.recorder != nil {
		x.response.Committed, x.response.Size = false, 0 // nothing has been sent
		x.recorder.Undo()
	}
	response := x.c.Response()
	x.direct = answerWriter{response.Writer, r}
	response.Writer = &x.direct
	defer func() {
		if response.Writer == &x.direct {
			response.Writer = x.direct.ResponseWriter
		}
	}()
	response.WriteHeader(r.Status)
	if len(r.Body) == 0 {
		return nil
	}
	_, err := response.Write(r.Body)
	return err
}

// answerWriter sets the header of an answer after Echo's Before hooks have run: what they add is in the
// answer already.
type answerWriter struct {
	http.ResponseWriter
	answer *core.Response
}

func (w *answerWriter) WriteHeader(status int) {
	adapterkit.SetHeader(w.Header(), w.answer)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// restore gives c its request back.
func restore(c echo.Context, original *http.Request) {
	adapterkit.Adopt(original, c.Request())
	c.SetRequest(original)
}

func (x *exchange) Pass() error {
	defer restore(x.c, x.c.Request())
	x.c.SetRequest(x.Rewound())
	return x.next(x.c)
}

func (x *exchange) Run(ctx context.Context, limit int) (captured core.Capture, err error) {
	c, h := x.c, new(handed)
	x.response, x.recorder, x.finisher = c.Response(), &h.Recorder, finisherOf(c)
	x.below, x.partial, x.status = x.response.Writer, x.response.Committed, x.response.Status
	x.recorder.Start(ctx, x.below, limit)
	defer restore(c, c.Request())
	c.SetRequest(x.For(ctx, &h.body))
	x.response.Writer = x.recorder
	returned := false
	defer func() {
		x.response.Writer = x.below
		switch {
		case !returned: // a panic or runtime.Goexit, which goes on
			x.drop()
		case captured.Deferred:
			if x.finisher.front == nil {
				x.finisher.front = x.recorder
			}
			x.response.Writer = x.finisher.front
		}
	}()
	x.err = x.next(c)
	if x.err != nil && x.finisher == nil && !isSealed(c) {
		c.Error(x.err)
		x.rendered = x.response.Committed
	}
	returned = true

	if x.finisher != nil && !x.response.Committed && !x.recorder.Written() {
		return core.Capture{Deferred: true, Err: x.err}, x.err
	}
	return x.capture(), x.err
}

// seal gives c a response that has been sent, and ignores writes: error handlers that do not look at
// Committed would write a second answer behind the first one.
func seal(c echo.Context) {
	sent := c.Response()
	sealed := echo.NewResponse(sealedWriter{sent.Writer}, c.Echo())
	sealed.Status, sealed.Size, sealed.Committed = sent.Status, sent.Size, true
	c.SetResponse(sealed)
}

// isSealed reports whether a guard further in has rendered the error already.
func isSealed(c echo.Context) bool {
	_, sealed := c.Response().Writer.(sealedWriter)
	return sealed
}

// sealedWriter ignores writes.
type sealedWriter struct{ http.ResponseWriter }

func (sealedWriter) WriteHeader(int)               {}
func (sealedWriter) Write(b []byte) (int, error)   { return len(b), nil }
func (w sealedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// drop drops what the recorder holds back. If nothing else has been sent, the response is not committed
// any more: else the recovery would not answer.
func (x *exchange) drop() {
	if !x.partial && !x.recorder.Passing() && !x.bypassed() {
		x.response.Status, x.response.Size, x.response.Committed = x.status, 0, false
	}
	x.recorder.Drop()
}

func (x *exchange) capture() core.Capture {
	captured := x.recorder.Capture(http.StatusOK)
	captured.Incomplete = captured.Incomplete || x.partial || x.bypassed()
	captured.Empty = captured.Empty && !x.bypassed()
	captured.Err = x.err
	return captured
}

// bypassed reports whether a response was written past the recorder.
func (x *exchange) bypassed() bool { return x.response.Committed && !x.recorder.Written() }

func (x *exchange) Deliver(fields []core.Field) error { return x.recorder.Deliver(fields) }
