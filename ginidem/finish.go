package ginidem

import (
	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
)

// Finish returns middleware that completes the runs whose response was left to a middleware
// between it and the guard. Mount it outside of the middleware that renders errors, on all
// routes; where no guard is, it does nothing.
//
// Errors that nobody has rendered by then make a failure. If a middleware in between
// replaces c.Writer once the guard has returned, what it renders is not seen, and counts as
// a failure too.
//
// Guards and verifiers behind it also learn how much of the body has been read before them, see
// [httpidem.Finish].
func Finish() gin.HandlerFunc {
	return func(c *gin.Context) {
		f := new(finisher)
		c.Set(finishKey{}, f)
		original := c.Request
		c.Request = httpidem.CountBody(original)
		defer func() {
			httpidem.Adopt(original, c.Request)
			c.Request = original
		}()
		returned := false
		defer func() { f.finish(returned) }()
		c.Next()
		returned = true
	}
}

type finishKey struct{}

// finisher holds the exchanges to be finished, the innermost guard's first.
type finisher struct{ exchanges []*exchange }

func finisherOf(c *gin.Context) *finisher {
	v, _ := c.Get(finishKey{})
	f, _ := v.(*finisher)
	return f
}

// innermost returns the exchange whose writer stands in front of all others once x is
// deferred.
func (f *finisher) innermost(x *exchange) *exchange {
	if len(f.exchanges) > 0 {
		return f.exchanges[0]
	}
	return x
}

// Defer implements [core.Deferrer].
func (x *exchange) Defer(p *core.Pending) {
	x.pending = p
	x.finisher.exchanges = append(x.finisher.exchanges, x)
}

func (f *finisher) finish(returned bool) {
	for _, x := range f.exchanges {
		if x.c.Writer == x.w {
			x.c.Writer = x.w.outer
		}
		if !returned {
			x.drop()
			_ = x.pending.Finish(nil)
			continue
		}
		captured := x.capture(x.reported())
		// A status alone is what the handler has noted, not what became of its error.
		captured.Unrendered = !x.w.Written() && (x.bypassed() || captured.Err != nil && !captured.Empty)
		if err := x.pending.Finish(&captured); err != nil {
			_ = x.c.Error(err)
		}
	}
}
