package echoidem

import (
	"cmp"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// Finish returns middleware that completes the runs whose response was left to a middleware
// between it and the guard. Mount it outside of the middleware that maps errors, on all
// routes; where no guard is, it does nothing.
//
// An error of a guarded handler that comes up to Finish is rendered with c.Error, unless somebody
// has done so, and returned, as [New] does it. If a middleware in between exchanges the response's Writer once the
// guard has returned, what is rendered is not seen, and counts as a failure.
//
// Guards and verifiers behind it also learn how much of the body has been read before them. Without
// that, they can't tell a body in chunks that was read in part from a whole one, nor an empty one from
// one that was read, which gets 500 body_consumed.
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
				if !c.Response().Committed { // a logger in between may have rendered it
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
	front *adapterkit.Recorder // of the innermost guard that has deferred: it stands in front of all others
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
