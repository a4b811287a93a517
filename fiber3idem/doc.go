// Package fiber3idem mounts a [core.Guard] on Fiber v3, so that the operation behind a
// route happens once.
//
//	engine := core.MustNew(core.Config{User: fiber3idem.UserFromLocals("user")})
//	orders := engine.MustGuard(core.Policy{})
//
//	app.Post("/orders", fiber3idem.New(orders), createOrder)
//
// Mount it inside recovery and authentication, and on the routes themselves. It is a module of its own; fiberidem is the
// same for Fiber v2, with the same keys.
//
// # Errors
//
// An error that the handler returns is rendered by the app's ErrorHandler at the guard,
// so that what is stored is what the client gets. If a middleware further out makes
// something else of errors, mount [Finish] outside of it: the guard then hands errors on,
// and the run is finished once they have become a response.
//
// # Middleware
//
// Middleware outside the guard runs for replays, too. Header fields that it has set
// before the handler, and that the handler does not touch, are therefore not stored: a
// replay has them as they are for its own request.
//
// # Routes
//
// The route in a key has the spelling that all adapters share: :id, :id? and :id<int>
// are ":id"; * and + are "*". A wildcard's parameter is called "*"; if a route has several
// they are "*1", "*2" and so on, in their order, whether * or +. Fiber's own rules hold for
// the values, so that "/files/*" has "a/b" for /files/a/b. Values are unescaped once, also if
// fiber.Config.UnescapePath has done it, and a wildcard's as [adapter.Request].PathParams says.
//
// A guard mounted with Use or Group runs before Fiber knows the route. The key then has
// the escaped path as sent in place of a route, so /orders and /orders/ are two operations.
// The same holds for routes whose parameters Fiber cannot tell apart: those with a name
// twice, those of an app mounted under a prefix with parameters, and, with UnescapePath, those with a wildcard that is
// not at the end.
//
// # Bodies
//
// A request body counts as sent: compressed bodies are not decompressed, although c.Body does that for the handler. So a retry
// that is compressed anew, with another timestamp say, is another operation, and core.Fields finds nothing in it. A middleware in
// front that sets a decoded body has to delete Content-Encoding. Fiber takes
// multipart forms apart before any handler runs and drops the bytes; the guard then sees
// the form rebuilt, with its parts in any order, and without those that have no
// name. Keys do not depend on the order, but where a form is read as it was sent, parts
// without a name count; and a hook that reads adapter.Request.Body may depend on both. For
// these, set DisablePreParseMultipartForm.
//
// With StreamRequestBody the body is read up to the policy's BodyLimit and put back as a
// stream. A request that is answered with part of its body unread ends its connection,
// because fasthttp would take the rest for the next request. Its client gets up to half a
// second to finish sending before it is answered.
//
// What an outer middleware has read from that stream is gone. A multipart form of known length counts as
// it was parsed; any other such request is refused with 500 body_consumed. c.Body, and c.FormValue of an
// urlencoded form, keep the body and do no harm; but if a part was read from the stream before them, the
// rest passes for the body.
//
// # Signatures
//
// [Verify] mounts a verifier of package sign outside the guard, which then takes the key's
// owner for its user; [Verified] tells the handlers who has signed:
//
//	verifier := sign.Must(sign.NewVerifier(sign.Config{
//		Keys: ring, Nonces: engine.Nonces(), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
//	}))
//	app.Post("/webhooks", fiber3idem.Verify(verifier), fiber3idem.New(hooks), receive)
//
// A signature covers the bytes that were sent. Where signed requests may be multipart
// forms, set DisablePreParseMultipartForm: the bytes of a form that was taken apart are lost, and it is
// refused as malformed.
//
// Fiber reads a body before any handler, unless StreamRequestBody is set: also that of a message which the
// verifier then refuses for its timestamp. c.Host() and c.Hostname() follow X-Forwarded-Host, which is not signed, where
// TrustProxy is set and the proxy is trusted. A request whose Host line and target, in absolute form, name
// different hosts is refused as malformed. A signed field with tabs around its
// value is refused as malformed where fasthttp leaves them to the handler. With DisableHeaderNormalizing a
// relay can change the case of a signed name, so that c.Get does not find it.
//
// Where fasthttp keeps one of several lines of a field (Host, Content-Type and others), all
// that were received count.
//
// Nothing that a trailer has brought is in the header of a verified request (RFC 9110, section 6.5.1). Without
// StreamRequestBody, fasthttp reads the trailer of a body in chunks before any handler runs; what it has brought is
// taken away then, and a field that an outer middleware has added to such a request goes with it. If more lines
// of a name are there than were sent, the request is refused as malformed.
//
// The Date of a refusal is fasthttp's own, which can't be set: it is the system clock's, also if
// sign.Config.Clock is another one, and there is none with DisableDefaultDate.
//
// # net/http
//
// fasthttp makes a stream of what a handler of net/http flushes (a httputil.ReverseProxy, say), and doesn't tell
// that its client has left: the run ends with the stream, and is abandoned if that is cut short. Fiber's own
// proxy middleware has the whole answer before it is sent.
//
// # Contexts
//
// The run's context is c.Context(): it is cancelled when the lease is lost, and when
// the handler has returned. c itself, which Fiber lets pass for a context, and c.RequestCtx() do neither. The context of a response
// that is a body stream (SendStream, SendStreamWriter), or of a hijacked connection, goes on after the handler, for as long as
// the request's own. Do not make c or c.RequestCtx() the request's context: they are reused while a
// hook or a store may still look at them.
//
// # Connections
//
// c.Drop closes the connection under a response that Fiber still has: a handler that has set none looks like one that has succeeded
// without a body, and a retry gets an empty 200. Call [core.Run.Release] of [Run] before it, or [core.Run.Abandon] if the
// operation may have taken effect. c.End sends the response before the run is finished: a retry that comes at once is refused as in
// progress.
//
// # Timeouts
//
// Fiber's timeout answers, and lets its handler run on. Mount it inside the guard, around the handler alone: the claim is then valid
// for a lease more, as after a crash, for nobody knows what the handler will have done. In front of a guard it is to be avoided: it
// writes to the response beside the handler.
package fiber3idem
