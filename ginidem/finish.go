package ginidem

import (
	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// Finish returns middleware that completes the runs whose response is made by a middleware between it
// and the guard. Mount it outside of the middleware that renders errors, on all routes; without a guard
// behind it, it does nothing.
//
// A run whose error nobody has rendered has failed. So has one whose response is rendered to another
// c.Writer, which a middleware in between has set once the guard has returned.
//
// It also counts how much of the body is read before the guards and verifiers behind it. Without that,
// they take a chunked body that was read in part for a whole one, and refuse an empty one: 500
// body_consumed.
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
	front *writer // of the innermost guard, in front of all others
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
	// A status alone was set by the handler, and says nothing of what became of its error.
	captured.Unrendered = !x.w.Written() && (x.bypassed() || captured.Err != nil && !captured.Empty)
	return &captured
}
