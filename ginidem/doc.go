// Package ginidem mounts a [core.Guard] on Gin:
//
//	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
//	orders := engine.MustGuard(core.Policy{})
//	r.POST("/orders", ginidem.New(orders), createOrder)
//
// Inside the handler, [Run] tells the attempt; c.Request.Context() ends when the claim is
// lost. The body may be read and bound in every way that Gin has, and the response is the
// client's as without the guard.
//
// # Errors that a middleware renders
//
// A handler that calls c.Error and writes no body leaves the response to a middleware
// further out, which the guard can't see: the run has failed, and the next try runs. Mount
// [Finish] outside that middleware, and what it renders is stored:
//
//	r.Use(gin.Recovery(), ginidem.Finish(), renderErrors)
//
// The same holds for middleware that renders a response where the handler has written nothing.
//
// # Bodies
//
// Mount [New] and [Verify] outside middleware that reads bodies. A form that was read counts as it
// was parsed, and a body that ShouldBindBodyWith has kept as it is. Any other body that was read, in whole or in
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
//	r.POST("/webhooks", ginidem.Verify(verifier), ginidem.New(hooks), receive)
package ginidem
