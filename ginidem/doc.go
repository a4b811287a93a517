// Package ginidem mounts a [core.Guard] on Gin:
//
//	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
//	orders := engine.MustGuard(core.Policy{})
//	r.POST("/orders", ginidem.New(orders), createOrder)
//
// Inside the handler, [Run] returns the run, with its attempt. c.Request.Context() ends when the claim is lost. The handler may read
// and bind the body in every way that Gin has, and the client gets the same response as without the guard.
//
// # Errors that a middleware renders
//
// If a handler calls c.Error and writes no body, outer middleware renders the response. The guard cannot see that response: the run
// has failed, and the next try runs. Mount [Finish] outside that middleware to have its response stored:
//
//	r.Use(gin.Recovery(), ginidem.Finish(), renderErrors)
//
// The same applies to middleware that answers when the handler has written nothing.
//
// # Bodies
//
// Mount [New] and [Verify] outside middleware that reads bodies. If a form was read before, the guard uses it as parsed. If
// ShouldBindBodyWith has kept a body, the guard uses that. Any other body that was read before, in whole or in part, is refused: by
// the guard with 500 body_consumed, by Verify as malformed. Verify also refuses a form that was read before.
//
// If a chunked body was read before, only a [Finish] mounted further out can see that. Without it,
//
//   - a body that was read in part looks complete;
//   - an empty body, or one that was read to its end, is refused by the guard if it has a Content-Type, and looks like no body if it
//     has none;
//   - if somebody adds a body to a request that was signed without one, and outer middleware reads it, it reaches the handler unsigned.
//
// # Signatures
//
// [Verify] mounts a verifier of package sign outside the guard. The guard then uses the key's owner as its user. [Verified] tells the
// handler who signed the request:
//
//	verifier := sign.Must(sign.NewVerifier(sign.Config{
//		Keys: ring, Nonces: engine.Nonces(), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
//	}))
//	r.POST("/webhooks", ginidem.Verify(verifier), ginidem.New(hooks), receive)
package ginidem
