// Package httpidem mounts a [core.Guard] on net/http, and so on chi, gorilla/mux and every
// other router that is built on it:
//
//	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
//	orders := engine.MustGuard(core.Policy{})
//	mux.Handle("POST /orders", httpidem.New(orders)(createOrder))
//
// Inside the handler, core.RunFrom(r.Context()) tells the attempt.
//
// # Routes
//
// The route is the pattern in r.Pattern, in the spelling that all adapters share:
// "POST example.com/orders/{id}/pay" is "example.com/orders/:id/pay", and a subtree
// "/files/" is "/files/*" with the rest of the path as the parameter "*". What stands in
// front of the pattern (a prefix that http.StripPrefix has taken away, or the pattern
// under which a chi router is mounted) belongs to the route as it was sent, so that equal
// patterns under two prefixes stay two routes. A guard outside the router sees no
// pattern; its route is the whole path as sent. [WithRoute] is for routers that leave
// r.Pattern empty.
//
// # Bodies
//
// Mount [New] and [Verify] outside middleware that reads bodies. A form that was read counts as it was
// parsed (r.PostForm, r.MultipartForm). Any other body that was read, in whole or in
// part, is refused: 500 body_consumed, and malformed by Verify, forms included. What is read of a chunked body is seen by
// [Finish] further out only. Without it, one that was read in part passes for a whole one, a guard refuses an empty one
// that has a Content-Type and takes one without for no body, and a body that was added to a request signed without one,
// and read outside the guard, reaches the handler unsigned.
//
// # What the handler sees
//
// The handler gets a copy of the request with the run's context. The body has been read,
// and reads from the start: ContentLength is its length, also if it was sent in chunks
// (TransferEncoding still tells), and GetBody returns it again. The response writer
// holds back the response, with a body of up to the policy's ResponseLimit, until the result
// is stored. With a larger body, or as soon as the handler flushes or hijacks, it passes everything
// through. [http.ResponseController] reaches what else the server offers.
//
// # Middleware
//
// Middleware outside the guard runs for replays, too. Header fields that it has set
// before the handler, and that the handler does not touch, are therefore not stored: a
// replay has them as they are for its own request. A middleware outside that compresses
// bodies sees them as the handler wrote them, the first time and again.
//
// # Signatures
//
// [Verify] mounts a verifier of package sign. Mount it outside the guard, which then takes
// the key's owner for its user, so that two customers with one Idempotency-Key have two
// operations:
//
//	verify := httpidem.Verify(sign.Must(sign.NewVerifier(sign.Config{
//		Keys: ring, Nonces: engine.Nonces(), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
//	})))
//	mux.Handle("POST /webhooks", verify(httpidem.New(hooks)(receive)))
//
// The handler gets a copy of the request with the signer in its context (sign.From), and with a
// body that reads from the start, as inside a guard. What is signed is what was sent:
// r.RequestURI and r.Host. Outer middleware must not change the method, or fields that
// are signed.
package httpidem
