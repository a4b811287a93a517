package fiber3idem

import (
	"context"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/adapterkit/fasthttpkit"
	"github.com/idem-go/idem/core/adapter"
)

// exchange is one request and its response. Exchanges are pooled.
type exchange struct {
	fasthttpkit.Exchange
	c     fiber.Ctx
	place *place
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (x *exchange) start(c fiber.Ctx, p *place) {
	x.c, x.place = c, p
	x.Start(x, c.RequestCtx(), &p.Place)
}

func (x *exchange) Describe(r *adapter.Request) {
	x.Exchange.Describe(r)
	r.Method, r.Preforked, r.Native = x.c.Method(), x.place.preforked, x.c
}

func (x *exchange) Param(name string) string { return x.c.Params(name) }

func (x *exchange) Pass(ctx context.Context) error {
	_, err := x.Next(ctx)
	return err
}

// Next leaves an abandoned context alone: Fiber's timeout has answered, and the handler, which runs on, uses the context.
func (x *exchange) Next(ctx context.Context) (runsOn bool, err error) {
	outer := x.c.Context()
	x.c.SetContext(ctx)
	defer restore(x.c, outer, ctx)
	err = x.c.Next()
	return x.c.IsAbandoned(), err
}

func (x *exchange) Render(err error) { render(x.c, err) }

func (x *exchange) Finisher() *fasthttpkit.Finisher { return fasthttpkit.FinisherOf(x.c) }

// restore gives c its own context back, with what handlers have left in the place of ctx.
func restore(c fiber.Ctx, outer, ctx context.Context) {
	if !c.IsAbandoned() {
		c.SetContext(adapterkit.ContextAfter(outer, ctx, c.Context()))
	}
}

// render makes a response of err, as Fiber does at the end of the chain. An abandoned context has one already.
func render(c fiber.Ctx, err error) {
	if !c.IsAbandoned() && c.App().ErrorHandler(c, err) != nil {
		_ = c.SendStatus(fiber.StatusInternalServerError) // always nil
	}
}

// place is where a guard is mounted: what is the same for all requests that come there.
type place struct {
	fasthttpkit.Place
	preforked bool // this process is one of several
}

type places = fasthttpkit.Places[fiber.Ctx, fiber.Route, place]

func newPlaces() *places { return &places{Route: fiber.Ctx.Route, Find: newPlace} }

// pages has the places of handlers that belong to no guard.
var pages = newPlaces()

// newPlace looks c's route up among all of its app's. It is not lasting if it is not there: c.Route then makes
// it up anew at each call.
func newPlace(c fiber.Ctx) (p *place, lasting bool) {
	app, route := c.App(), c.Route()
	config := app.Config()
	p = &place{preforked: fiber.IsChild()}
	p.Unescaped, p.NamesAsSent, p.Limited = config.UnescapePath, config.DisableHeaderNormalizing, fasthttpkit.IsLimited()
	all, matching := count(app.GetRoutes(), route), count(app.GetRoutes(true), route)
	// GetRoutes(true) leaves out what Use has registered. If Use and a method share handlers and
	// path, this may be either of them.
	p.SetRoute(route.Path, route.Params, matching == 0 || matching != all)
	return p, all > 0
}

// count says how many of routes are like r, as far as can be seen from outside of Fiber.
func count(routes []fiber.Route, r *fiber.Route) (n int) {
	for i := range routes {
		s := &routes[i]
		if s.Method == r.Method && s.Path == r.Path && len(s.Handlers) == len(r.Handlers) &&
			len(s.Handlers) > 0 && &s.Handlers[0] == &r.Handlers[0] {
			n++
		}
	}
	return n
}
