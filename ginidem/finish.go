package ginidem

import (
	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// Finish returns middleware that completes the runs whose response was left to a middleware
// between it and the guard. Mount it outside of the middleware that renders errors, on all
// routes; where no guard is, it does nothing.
//
// Errors that nobody has rendered by then make a failure. If a middleware in between
// replaces c.Writer once the guard has returned, what it renders is not seen, and counts as
// a failure too.
//
// Guards and verifiers behind it also learn how much of the body has been read before them. Without
// that, they can't tell a body in chunks that was read in part from a whole one, nor an empty one from
// one that was read, which gets 500 body_consumed.
func Finish() gin.HandlerFunc {
	return func(c *gin.Context) {
		f, returned := new(finisher), false
		c.Set(finisherKey{}, f)
		defer restore(c, c.Request)
		c.Request = adapterkit.CountBody(c.Request)
		defer func() {
			if err := f.Finish(returned); err != nil {
				_ = c.Error(err)
			}
		}()
		c.Next()
		returned = true
	}
}

type finisherKey struct{}

type finisher struct {
	core.Finisher
	front *writer // of the innermost guard that has deferred: it stands in front of all others
}

func finisherOf(c *gin.Context) *finisher {
	v, _ := c.Get(finisherKey{})
	f, _ := v.(*finisher)
	return f
}

// Defer implements [core.Deferrer].
func (x *exchange) Defer(p *core.Pending) {
	x.pending = true
	x.finisher.Defer(p, x.final)
}

// final is the capture of what a middleware further out has rendered; nil after a panic.
func (x *exchange) final(returned bool) *core.Capture {
	if x.c.Writer == x.w {
		x.c.Writer = x.w.outer
	}
	if !returned {
		x.drop()
		return nil
	}
	captured := x.capture()
	// A status alone is what the handler has noted, not what became of its error.
	captured.Unrendered = !x.w.Written() && (x.bypassed() || captured.Err != nil && !captured.Empty)
	return &captured
}
