package echoidem

import (
	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/core"
)

// Finish returns middleware that completes the runs whose response was left to a middleware
// between it and the guard. Mount it outside of the middleware that maps errors, on all
// routes; where no guard is, it does nothing.
//
// An error of a guarded handler that comes up to Finish is rendered with c.Error, and nil
// is returned. If a middleware in between exchanges the response's Writer once the
// guard has returned, what is rendered is not seen, and counts as a failure.
func Finish() echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			f := new(finisher)
			c.Set(finishKey, f)
			returned := false
			defer func() {
				if ferr := f.finish(returned); err == nil {
					err = ferr
				}
			}()
			if err = next(c); err != nil && len(f.exchanges) > 0 {
				c.Error(err)
				err = nil
			}
			returned = true
			return err
		}
	}
}

const finishKey = "github.com/idem-go/idem/echoidem.Finish"

// finisher holds the exchanges to be finished, the innermost guard's first.
type finisher struct{ exchanges []*exchange }

func finisherOf(c echo.Context) *finisher {
	f, _ := c.Get(finishKey).(*finisher)
	return f
}

// innermost returns the exchange whose recorder stands in front of all others once x is
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

func (f *finisher) finish(returned bool) (err error) {
	for _, x := range f.exchanges {
		if x.response.Writer == x.recorder {
			x.response.Writer = x.below
		}
		if !returned {
			_ = x.Deliver()
			x.pending.Finish(nil)
			continue
		}
		captured := core.Capture{Unrendered: true, Err: x.err}
		if x.recorder.Written() || x.err == nil && !x.bypassed() {
			captured = x.capture()
		}
		x.pending.Finish(&captured)
		if derr := x.Deliver(); err == nil {
			err = derr
		}
	}
	return err
}
