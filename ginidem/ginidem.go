package ginidem

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// New returns middleware that protects the handlers behind it with g. It is safe for
// concurrent use, and may be mounted on any number of routes: the route is part of the
// key. An error in writing to the client is added to c.Errors, as Gin itself does.
//
// Mount it in front of middleware that reads bodies. A form that was read counts as it was parsed, and a
// body that ShouldBindBodyWith has kept counts as it is. Any other body that was read, in whole or in
// part, is refused: 500 body_consumed. See [Finish] for chunked bodies.
func New(g *core.Guard) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := exchanges.Get().(*exchange)
		x.Start(c.Request)
		x.c = c
		if err := g.Serve(c.Request.Context(), x); err != nil {
			_ = c.Error(err)
		}
		if x.pending {
			return // Finish has it
		}
		// After a panic it stays out of the pool, too: somebody may still hold it.
		x.End()
		*x = exchange{}
		exchanges.Put(x)
	}
}

// Run returns the run that a handler is part of, or nil, which answers like a first attempt.
func Run(c *gin.Context) *core.Run { return core.RunFrom(c.Request.Context()) }

// Replayed reports whether the response is a replay, for middleware further out.
func Replayed(c *gin.Context) bool { return adapterkit.Replayed(c.Writer) }

// UserFromContext takes the user from the value that authentication middleware has set
// with c.Set(key, value), see [core.UserFromValue].
func UserFromContext(key any) core.UserSource {
	return adapterkit.UserFrom("Gin", func(c *gin.Context) any {
		v, _ := c.Get(key)
		return v
	})
}

// exchange is one request and its response. Exchanges are pooled; what the handler may keep is in
// handed, which is not.
type exchange struct {
	adapterkit.Request
	c        *gin.Context
	w        *writer
	direct   committer // for Answer
	errors   int       // how many there were before the handler
	status   int       // from before the handler
	partial  bool      // something was written before the handler
	finisher *finisher // nil: no Finish is mounted
	pending  bool      // Finish will complete it
}

type handed struct {
	writer
	body adapterkit.Body
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchangeOf returns an exchange that runs no handler. It is not pooled.
func exchangeOf(c *gin.Context) *exchange {
	x := &exchange{c: c}
	x.Start(c.Request)
	return x
}

func (x *exchange) Describe(r *core.Request) {
	x.Request.Describe(r)
	r.Native = x.c
	describeRoute(x.c, r)
}

func (x *exchange) ReadBody(limit int64) ([]byte, error) {
	body, err := x.Request.ReadBody(limit)
	if errors.Is(err, core.ErrBodyConsumed) {
		if v, _ := x.c.Get(gin.BodyBytesKey); v != nil {
			if kept, ok := v.([]byte); ok && len(kept) > 0 {
				return x.TakeBody(kept, limit)
			}
		}
	}
	return body, err
}

func (x *exchange) Answer(r *core.Response) error {
	if x.w != nil {
		x.w.Undo()
	}
	x.c.Abort()
	x.direct.ResponseWriter = x.c.Writer
	err := adapterkit.Answer(&x.direct, r)
	x.direct.commit()
	return err
}

// restore gives c its request back.
func restore(c *gin.Context, original *http.Request) {
	adapterkit.Adopt(original, c.Request)
	c.Request = original
}

func (x *exchange) Pass() error {
	defer restore(x.c, x.c.Request)
	x.c.Request = x.Rewound()
	x.c.Next()
	return nil
}

func (x *exchange) Run(ctx context.Context, limit int) (captured core.Capture, err error) {
	c, h := x.c, new(handed)
	x.w, x.errors, x.finisher = &h.writer, len(c.Errors), finisherOf(c)
	x.status, x.partial = c.Writer.Status(), c.Writer.Written()
	x.w.start(ctx, c.Writer, limit)
	defer restore(c, c.Request)
	c.Request = x.For(ctx, &h.body)
	c.Writer = x.w
	returned := false
	defer func() {
		c.Writer = x.w.outer
		switch {
		case !returned: // a panic or runtime.Goexit, which goes on
			x.drop()
		case captured.Deferred:
			if x.finisher.front == nil {
				x.finisher.front = x.w
			}
			c.Writer = x.finisher.front
		}
	}()
	c.Next()
	returned = true

	reported := x.reported()
	switch {
	case x.w.Size() > 0 || x.w.Passing() || x.w.Written() && reported == nil || x.bypassed():
		// The handler has answered.
	case x.finisher != nil:
		return core.Capture{Deferred: true, Err: reported}, nil
	case reported != nil:
		return core.Capture{Unrendered: true, Err: reported, Incomplete: x.partial}, nil
	}
	return x.capture(), nil
}

func (x *exchange) capture() core.Capture {
	captured := x.w.Capture(max(x.w.Status(), http.StatusOK)) // no 1xx is the final status
	captured.Incomplete = captured.Incomplete || x.partial || x.bypassed()
	// A status alone is an answer, unless it is the one from before the handler.
	captured.Empty = captured.Empty && !x.partial && !x.bypassed() && x.w.Status() == x.status
	captured.Err = x.reported()
	return captured
}

// bypassed reports whether a response was written past the recorder.
func (x *exchange) bypassed() bool { return !x.partial && !x.w.Written() && x.w.outer.Written() }

// reported returns the last error that the handler has reported with c.Error.
func (x *exchange) reported() error {
	if len(x.c.Errors) <= x.errors {
		return nil
	}
	return x.c.Errors.Last().Err
}

// drop drops what the recorder holds back, and the status that goes with it.
func (x *exchange) drop() {
	x.w.Drop()
	x.w.forgetStatus(x.status)
}

func (x *exchange) Deliver(fields []core.Field) error { return x.w.Deliver(fields) }
