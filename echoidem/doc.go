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
// The guard renders them with c.Error, so that what Echo's error handler sends is stored, and then
// returns them: middleware further out logs or reports them, and can't render them again. If a middleware
// changes errors on their way out (Echo's ContextTimeout does), mount [Finish] outside of it. The guard
// then only returns the error, and what is sent in the end is stored:
//
//	e.Use(middleware.Recover(), echoidem.Finish(), mapErrors)
//
// # Bodies
//
// Mount [New] and [Verify] outside middleware that reads bodies. A form that CSRF, KeyAuth or another
// middleware has read counts as it was parsed. Any other body that was read, in whole or in
// part, is refused: 500 body_consumed, and malformed by Verify, forms included. What is read of a chunked body is seen by
// [Finish] further out only. Without it, one that was read in part passes for a whole one, a guard refuses an empty one
// that has a Content-Type and takes one without for no body, and a body that was added to a request signed without one,
// and read outside the guard, reaches the handler unsigned.
//
// # Signatures
//
// [Verify] mounts a verifier of package sign outside the guard, which then takes the key's
// owner for its user; [Verified] tells the handler who has signed:
//
//	verifier := sign.Must(sign.NewVerifier(sign.Config{
//		Keys: ring, Nonces: engine.Nonces(), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
//	}))
//	e.POST("/webhooks", receive, echoidem.Verify(verifier), echoidem.New(hooks))
//
// Mount it inside middleware that overrides the method (middleware.MethodOverride): a request
// whose method is not the one that was signed is then refused. With Echo.Pre it may stand in
// front, and an override that nobody has signed counts.
package echoidem
