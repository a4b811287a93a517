// Package httpidem mounts a [core.Guard] on net/http, and so on chi, gorilla/mux and every other router that is built on it:
//
//	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
//	orders := engine.MustGuard(core.Policy{})
//	mux.Handle("POST /orders", httpidem.New(orders)(createOrder))
//
// Inside the handler, core.RunFrom(r.Context()) returns the run, with its attempt.
//
// # Routes
//
// The route is the pattern in r.Pattern, in the spelling that all adapters share: "POST example.com/orders/{id}/pay" is
// "example.com/orders/:id/pay", and a subtree "/files/" is "/files/*" with the rest of the path as the parameter "*". A prefix that
// the pattern does not have (because http.StripPrefix has removed it, or because a chi router is mounted under it) is part of the
// route, as sent: equal patterns under two prefixes are two routes. A guard outside the router sees no pattern, and its route is the
// whole path as sent. Use [WithRoute] for routers that leave r.Pattern empty.
//
// # Bodies
//
// Mount [New] and [Verify] outside middleware that reads bodies. If a form was read before, the guard uses it as parsed (r.PostForm,
// r.MultipartForm). Any other body that was read before, in whole or in part, is refused: by the guard with 500 body_consumed, by
// Verify as malformed. Verify also refuses a form that was read before.
//
// If a chunked body was read before, only a [Finish] mounted further out can see that. Without it,
//
//   - a body that was read in part looks complete;
//   - an empty body, or one that was read to its end, is refused by the guard if it has a Content-Type, and looks like no body if it
//     has none;
//   - if somebody adds a body to a request that was signed without one, and outer middleware reads it, it reaches the handler unsigned.
//
// # What the handler sees
//
// The handler gets a copy of the request with the run's context. The guard has read the body, and the handler reads it from the start.
// ContentLength is its length, even if it was chunked (TransferEncoding still says so), and GetBody returns it again.
//
// The response writer holds back the response, with a body of up to the policy's ResponseLimit, until the result is stored. If the
// body is larger, or when the handler flushes or hijacks, it passes everything through from then on. [http.ResponseController] reaches
// everything else that the server offers.
//
// # Middleware
//
// Middleware outside the guard also runs for replays. Header fields that it sets before the handler runs, and that the handler does
// not change, are therefore not stored: a replay has the fields of its own request. Outer middleware that compresses bodies sees them
// uncompressed, on the first response and on replays.
//
// # Signatures
//
// [Verify] mounts a verifier of package sign. Mount it outside the guard. The guard then uses the key's owner as its user, so two
// customers with the same Idempotency-Key have two operations:
//
//	verify := httpidem.Verify(sign.Must(sign.NewVerifier(sign.Config{
//		Keys: ring, Nonces: engine.Nonces(), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
//	})))
//	mux.Handle("POST /webhooks", verify(httpidem.New(hooks)(receive)))
//
// The handler gets a copy of the request, with the signer in its context (sign.From) and a body that reads from the start, as inside a
// guard. The signature covers what was sent: r.RequestURI and r.Host. Outer middleware must not change the method or signed fields.
package httpidem
