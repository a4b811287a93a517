package ginidem

import (
	"context"
	"fmt"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
)

// New returns middleware that protects the handlers behind it with g. It is safe for
// concurrent use, and may be mounted on any number of routes: the route is part of the
// key. An error in writing to the client is added to c.Errors, as Gin itself does.
func New(g *core.Guard) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := exchanges.Get().(*exchange)
		x.Start(c.Request)
		x.c = c
		if err := g.Serve(c.Request.Context(), x); err != nil {
			_ = c.Error(err)
		}
		if x.pending != nil {
			return // Finish has it
		}
		// Not after a panic either: nobody knows who still holds it.
		x.End()
		*x = exchange{Request: x.Request}
		exchanges.Put(x)
	}
}

// Run returns the run that a handler is part of: its attempt, owner and key.
func Run(c *gin.Context) (*core.Run, bool) { return core.RunFrom(c.Request.Context()) }

// UserFromContext takes the user from the value that authentication middleware has set
// with c.Set(key, value), see [core.UserFromValue].
func UserFromContext(key any) core.UserSource {
	return core.UserFunc(func(r *core.Request) (core.User, error) {
		c, ok := r.Native.(*gin.Context)
		if !ok {
			return core.User{}, fmt.Errorf("ginidem: UserFromContext was used with a %T", r.Native)
		}
		v, _ := c.Get(key)
		return core.UserFromValue(v)
	})
}

// exchange is one request and its response. Exchanges are pooled; what the handler may
// keep hold of is in handed, which is not.
type exchange struct {
	httpidem.Request
	c        *gin.Context
	w        *writer
	direct   committer // for Answer
	errors   int       // that had been reported before the handler
	partial  bool      // something had been written before the handler
	finisher *finisher // nil: no Finish is mounted
	pending  *core.Pending
}

type handed struct {
	writer
	body httpidem.Body
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (x *exchange) Describe(r *core.Request) {
	x.Request.Describe(r)
	r.Native = x.c
	describeRoute(x.c, r)
}

func (x *exchange) Answer(r *core.Response) error { return answer(x.c, &x.direct, r) }

func answer(c *gin.Context, direct *committer, r *core.Response) error {
	c.Abort()
	direct.ResponseWriter = c.Writer
	err := httpidem.Answer(direct, r)
	direct.settle()
	return err
}

func (x *exchange) Pass() error {
	original := x.c.Request
	x.c.Request = x.Rewound()
	defer func() {
		x.Adopt(x.c.Request)
		x.c.Request = original
	}()
	x.c.Next()
	return nil
}

func (x *exchange) Run(ctx context.Context, limit int) (captured core.Capture, err error) {
	c, h := x.c, new(handed)
	original := c.Request
	c.Request = x.For(ctx, &h.body)
	x.w, x.errors, x.partial, x.finisher = &h.writer, len(c.Errors), c.Writer.Written(), finisherOf(c)
	x.w.start(c.Writer, limit)
	c.Writer = x.w

	returned := false
	defer func() {
		x.Adopt(c.Request)
		c.Request = original
		c.Writer = x.w.outer
		switch {
		case !returned: // a panic or runtime.Goexit, which goes on
			_ = x.Deliver()
		case captured.Deferred:
			c.Writer = x.finisher.innermost(x).w
		}
	}()
	c.Next()
	returned = true

	reported := x.reported()
	switch {
	case x.w.size > 0 || x.w.Passing() || x.w.Written() && reported == nil:
		// Nobody further out has anything to add.
	case x.finisher != nil:
		return core.Capture{Deferred: true, Err: reported}, nil
	case reported != nil:
		return core.Capture{Unrendered: true, Err: reported}, nil
	}
	return x.capture(reported), nil
}

func (x *exchange) capture(reported error) core.Capture {
	captured := x.w.Capture(x.w.Status())
	captured.Incomplete = captured.Incomplete || x.partial || x.bypassed()
	captured.Err = reported
	return captured
}

// bypassed reports whether somebody has written, but not to the recorder.
func (x *exchange) bypassed() bool { return !x.w.Written() && x.w.outer.Written() }

// reported returns the last error that the handler has reported with c.Error.
func (x *exchange) reported() error {
	if len(x.c.Errors) <= x.errors {
		return nil
	}
	return x.c.Errors.Last().Err
}

func (x *exchange) Deliver() error { return x.w.Deliver() }
