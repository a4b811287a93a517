// Package echoidem mounts a [core.Guard] on Echo v4:
//
//	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
//	orders := engine.MustGuard(core.Policy{})
//	e.POST("/orders", createOrder, echoidem.New(orders))
//
// Inside the handler, [Run] tells the attempt; c.Request().Context() ends when the claim is
// lost. The body may be read and bound in every way that Echo has, and the response is
// the client's as without the guard.
//
// # Errors that a handler returns
//
// The guard renders them with c.Error, so that what Echo's error handler sends is what is
// stored, and returns nil to the middleware further out. If a middleware of yours changes
// errors on their way out, mount [Finish] outside of it; the guard then lets the error
// go up, and what is sent in the end is stored:
//
//	e.Use(middleware.Recover(), echoidem.Finish(), mapErrors)
package echoidem
