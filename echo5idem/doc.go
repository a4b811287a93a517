// Package echo5idem mounts a [core.Guard] on Echo v5:
//
//	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
//	orders := engine.MustGuard(core.Policy{})
//	e.POST("/orders", createOrder, echo5idem.New(orders))
//
// Inside the handler, [Run] returns the run, with its attempt. c.Request().Context() ends when the claim is lost. The handler may read
// and bind the body in every way that Echo has, and the client gets the same response as without the guard.
//
// # Errors that a handler returns
//
// The guard has Echo's HTTPErrorHandler render them, stores what it sends, and then returns them. Outer middleware can log or report
// them, but cannot render them again. If outer middleware changes errors (Echo's ContextTimeout does), mount [Finish] outside that
// middleware. The guard then only returns the error, and the response that is sent in the end is stored:
//
//	e.Use(middleware.Recover(), echo5idem.Finish(), mapErrors)
//
// If you have your own HTTPErrorHandler, it must check Committed, as Echo's does. Inside middleware that restores the context's
// response (BodyDump), nothing else keeps it from sending a second answer.
//
// # Middleware that replaces the response
//
// Gzip, BodyDump and similar middleware set a writer with c.SetResponse. That writer gets what the guard delivers, also on a replay;
// what it makes of it is not stored. Mount [Finish] inside such middleware.
//
// # Hosts
//
// Keys of different hosts differ if the hosts are those of an echo.NewVirtualHostHandler that is the server's Handler, or those of an
// outer http.ServeMux. Middleware wrapped around the former hides its hosts: then make [adapter.Request].Host part of the user.
//
// # Bodies
//
// Mount [New] and [Verify] outside middleware that reads bodies. If a form was read before (by CSRF, KeyAuth or other middleware), the
// guard uses it as parsed. Any other body that was read before, in whole or in part, is refused: by the guard with 500 body_consumed,
// by Verify as malformed. Verify also refuses a form that was read before.
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
//	e.POST("/webhooks", receive, echo5idem.Verify(verifier), echo5idem.New(hooks))
//
// Mount Verify inside middleware that overrides the method (middleware.MethodOverride): it then refuses a request whose method is not
// the signed one. If Verify is registered with Echo.Pre before such middleware, an override that nobody has signed takes effect.
package echo5idem
