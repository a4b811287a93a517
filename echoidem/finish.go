package echoidem

import (
	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
)

// Finish returns middleware that completes the runs whose response was left to a middleware
// between it and the guard. Mount it outside of the middleware that maps errors, on all
// routes; where no guard is, it does nothing.
//
// An error of a guarded handler that comes up to Finish is rendered with c.Error, unless somebody
// has done so, and returned, as [New] does it. If a middleware in between exchanges the response's Writer once the
// guard has returned, what is rendered is not seen, and counts as a failure.
//
// Guards and verifiers behind it also learn how much of the body has been read before them, see
// [httpidem.Finish].
func Finish() echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			f := new(finisher)
			c.Set(finishKey, f)
			original := c.Request()
			c.SetRequest(httpidem.CountBody(original))
			defer func() {
				httpidem.Adopt(original, c.Request())
				c.SetRequest(original)
			}()
			returned, rendered := false, false
			defer func() {
				ferr := f.finish(returned)
				if rendered {
					seal(c)
				}
				if err == nil {
					err = ferr
				}
			}()
			if err = next(c); err != nil && len(f.exchanges) > 0 {
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
			x.drop()
			_ = x.pending.Finish(nil)
			continue
		}
		captured := x.capture()
		captured.Unrendered = !x.recorder.Written() && x.bypassed()
		if derr := x.pending.Finish(&captured); err == nil {
			err = derr
		}
	}
	return err
}
