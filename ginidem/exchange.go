package ginidem

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
)

// exchange is one request and its response. Exchanges are pooled.
type exchange struct {
	adapterkit.Exchange
	c      *gin.Context
	w      *writer // that records; nil: none does
	noted  int     // the status from before the handler
	errors int     // how many there were before the handler
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchangeOf returns an exchange from the pool. Only New puts it back.
func exchangeOf(c *gin.Context) *exchange {
	x := exchanges.Get().(*exchange)
	x.Start(x, c.Request)
	x.c = c
	return x
}

func (x *exchange) Describe(r *adapter.Request) {
	x.Exchange.Describe(r)
	r.Native = x.c
	describeRoute(x.c, r)
}

func (x *exchange) ReadBody(limit int64) ([]byte, error) {
	body, err := x.Exchange.ReadBody(limit)
	if errors.Is(err, adapter.ErrBodyConsumed) || err == nil && len(body) == 0 {
		if v, _ := x.c.Get(gin.BodyBytesKey); v != nil {
			if kept, ok := v.([]byte); ok && len(kept) > 0 {
				return x.TakeBody(kept, limit)
			}
		}
	}
	return body, err
}

func (x *exchange) Answer(r *adapter.Response) error {
	x.c.Abort()
	return x.Exchange.Answer(r)
}

func (x *exchange) Writer() http.ResponseWriter     { return x.c.Writer }
func (x *exchange) SetWriter(w http.ResponseWriter) { x.c.Writer = w.(gin.ResponseWriter) }

func (x *exchange) Record(ctx context.Context) (*adapterkit.Recorder, http.ResponseWriter) {
	x.w = &writer{ctx: ctx, outer: outer{x.c.Writer}}
	x.noted = x.c.Writer.Status()
	return &x.w.Recorder, x.w
}

func (x *exchange) Next(r *http.Request) error {
	if x.w != nil {
		x.w.ground.lay(x.c, x.w)
		defer x.w.ground.lift()
	}
	next(x.c, r)
	return nil
}

func (x *exchange) Forget() { x.w.ground.forget(x.noted) }

// next runs the inner handlers with r, and gives c its own request back.
func next(c *gin.Context, r *http.Request) {
	original, ctx := c.Request, r.Context()
	defer func() {
		adapterkit.Adopt(original, r, c.Request, ctx)
		c.Request = original
	}()
	c.Request = r
	c.Next()
}

func (x *exchange) Finisher() *adapterkit.Finisher {
	x.errors = len(x.c.Errors)
	v, _ := x.c.Get(finisherKey{})
	f, _ := v.(*adapterkit.Finisher)
	return f
}

// Reported returns the last error that the handler has reported with c.Error. What becomes of it is up to
// a middleware further out.
func (x *exchange) Reported() (err error, rendered bool) {
	if len(x.c.Errors) <= x.errors {
		return nil, false
	}
	return x.c.Errors.Last().Err, false
}
