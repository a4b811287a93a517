package fasthttpkit_test

import (
	"context"
	"fmt"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit/fasthttpkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// exchange is a whole adapter, for a mux of handlers that return errors and know the route.
type exchange struct {
	fasthttpkit.Exchange
	ctx  *fasthttp.RequestCtx
	next handler
}

type handler func(ctx *fasthttp.RequestCtx) error

func guarded(g *core.Guard, route string, next handler) fasthttp.RequestHandler {
	return guardedAt(g, &fasthttpkit.Place{Route: route}, next)
}

func guardedAt(g *core.Guard, place *fasthttpkit.Place, next handler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		x := &exchange{ctx: ctx, next: next}
		x.Start(x, ctx, place)
		if err := g.Serve(contextOf(ctx), x); err != nil {
			x.Render(err)
		}
		x.End()
	}
}

type contextKey struct{}

// contextOf returns the run's context in a handler.
func contextOf(ctx *fasthttp.RequestCtx) context.Context {
	if c, ok := ctx.UserValue(contextKey{}).(context.Context); ok {
		return c
	}
	return context.Background()
}

func (x *exchange) Describe(r *adapter.Request) {
	x.Exchange.Describe(r)
	r.Method, r.Native = string(x.ctx.Method()), x.ctx
}

func (x *exchange) Param(string) string { return "" } // its routes have none

func (x *exchange) Pass(ctx context.Context) error {
	_, err := x.Next(ctx)
	return err
}

func (x *exchange) Next(ctx context.Context) (runsOn bool, err error) {
	x.ctx.SetUserValue(contextKey{}, ctx)
	defer x.ctx.RemoveUserValue(contextKey{})
	return false, x.next(x.ctx)
}

func (x *exchange) Render(err error) { x.ctx.Error(err.Error(), fasthttp.StatusInternalServerError) }

func (x *exchange) Finisher() *fasthttpkit.Finisher { return nil } // it has no Finish

func Example() {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	orders := guarded(engine.MustGuard(core.Policy{}), "/orders", func(ctx *fasthttp.RequestCtx) error {
		ctx.SetStatusCode(fasthttp.StatusCreated)
		_, err := fmt.Fprintf(ctx, "attempt %d", core.RunFrom(contextOf(ctx)).Attempt())
		return err
	})
	for range 2 {
		var ctx fasthttp.RequestCtx
		ctx.Request.Header.SetMethod(fasthttp.MethodPost)
		ctx.Request.SetRequestURI("/orders")
		ctx.Request.SetBodyString(`{"item":"book"}`)
		orders(&ctx)
		fmt.Println(ctx.Response.StatusCode(), string(ctx.Response.Body()), fasthttpkit.Replayed(&ctx))
	}
	// Output:
	// 201 attempt 1 false
	// 201 attempt 1 true
}
