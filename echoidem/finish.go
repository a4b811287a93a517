package echoidem

import (
	"cmp"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// Finish returns middleware that completes the runs whose response is made by a middleware between it
// and the guard. Mount it outside of the middleware that maps errors, on all routes; without a guard
// behind it, it does nothing.
//
// If nobody has rendered the error of a guarded handler by then, Finish renders it with c.Error, and
// returns it, as [New] does. A response that is rendered to another Writer, which a middleware in between has set
// once the guard has returned, is not seen: the run has failed.
//
// It also counts how much of the body is read before the guards and verifiers behind it. Without that,
// they take a chunked body that was read in part for a whole one, and refuse an empty one: 500
// body_consumed.
func Finish() echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			f := new(finisher)
			c.Set(finisherKey, f)
			defer restore(c, c.Request())
			c.SetRequest(adapterkit.CountBody(c.Request()))
			returned, rendered := false, false
			defer func() {
				ferr := f.Finish(returned)
				if rendered {
					seal(c)
				}
				err = cmp.Or(err, ferr)
			}()
			if err = next(c); err != nil && f.Deferred() {
				if !c.Response().Committed { // by a logger in between, say
					c.Error(err)
				}
				rendered = c.Response().Committed
			}
			returned = true
			return err
		}
	}
}

const finisherKey = "github.com/idem-go/idem/echoidem.Finish"

type finisher struct {
	core.Finisher
	front *adapterkit.Recorder // of the innermost guard, in front of all others
}

func finisherOf(c echo.Context) *finisher {
	f, _ := c.Get(finisherKey).(*finisher)
	return f
}

// Defer implements [core.Deferrer].
func (x *exchange) Defer(p *core.Pending) {
	x.pending = true
	x.finisher.Defer(p, x.final)
}

// final is the capture of what a middleware further out has rendered; nil after a panic.
func (x *exchange) final(returned bool) *core.Capture {
	if x.response.Writer == x.recorder {
		x.response.Writer = x.below
	}
	if !returned {
		x.drop()
		return nil
	}
	captured := x.capture()
	captured.Unrendered = !x.recorder.Written() && x.bypassed()
	return &captured
}
