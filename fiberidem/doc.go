// Package fiberidem mounts a [core.Guard] on Fiber v2:
//
//	engine := core.MustNew(core.Config{User: fiberidem.UserFromLocals("user")})
//	orders := engine.MustGuard(core.Policy{})
//
//	app.Post("/orders", fiberidem.New(orders), createOrder)
//
// Mount it inside recovery and authentication, and on the routes themselves.
//
// # Errors
//
// The guard has the app's ErrorHandler render an error that the handler returns, and stores what the client gets. If outer middleware
// changes errors, mount [Finish] outside that middleware. The guard then passes errors on, and the run is settled once they have become
// a response.
//
// # Middleware
//
// Middleware outside the guard also runs for replays. Header fields that it sets before the handler runs, and that the handler does
// not change, are therefore not stored: a replay has the fields of its own request.
//
// # Routes
//
// The route in a key has the spelling that all adapters share: :id, :id? and :id<int> are ":id"; * and + are "*". The parameter of a
// wildcard is called "*". If a route has several wildcards, they are "*1", "*2" and so on in their order, whether * or +. Values
// follow Fiber's rules: "/files/*" has "a/b" for /files/a/b. They are unescaped once, even if fiber.Config.UnescapePath has done so
// before; for those of wildcards see [adapter.Request].PathParams.
//
// A guard mounted with Use or Group runs before Fiber knows the route. Its keys have the escaped path as sent instead of a route, so
// /orders and /orders/ are two operations. The same applies to routes whose parameters Fiber cannot tell apart: routes with a name
// twice, routes of an app mounted under a prefix with parameters, and, with UnescapePath, routes with a wildcard that is not at the
// end.
//
// # Bodies
//
// The key is made from the body as sent. A compressed body is not decompressed, although c.Body does that for the handler. A retry that
// is compressed again (with another timestamp, for example) is therefore another operation, and core.Fields finds nothing in it. Outer
// middleware that sets a decoded body must delete Content-Encoding.
//
// Fiber parses multipart forms before any handler runs and drops their bytes. The guard then sees a rebuilt form: its parts are in any
// order, and parts without a name are missing. Keys do not depend on the order. Set DisablePreParseMultipartForm if parts without a
// name should count, or if a hook reads adapter.Request.Body, which may depend on both.
//
// With StreamRequestBody, the guard reads the body up to the policy's BodyLimit and puts it back as a stream. If a request is answered
// before its body was read completely, its connection is closed, because fasthttp would take the rest for the next request. The client
// has up to half a second to finish sending before it gets the answer.
//
// What outer middleware has read from that stream is gone. A multipart form of known length counts as parsed. Any other such request is
// refused with 500 body_consumed. c.Body, and c.FormValue of an urlencoded form, keep the body and do no harm. But if part of the
// stream was read before they were called, the rest looks like the whole body.
//
// # Signatures
//
// [Verify] mounts a verifier of package sign outside the guard. The guard then uses the key's owner as its user. [Verified] tells the
// handlers who signed the request:
//
//	verifier := sign.Must(sign.NewVerifier(sign.Config{
//		Keys: ring, Nonces: engine.Nonces(), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
//	}))
//	app.Post("/webhooks", fiberidem.Verify(verifier), fiberidem.New(hooks), receive)
//
// A signature covers the bytes that were sent. If signed requests may be multipart forms, set DisablePreParseMultipartForm: otherwise
// Fiber drops those bytes, and the request is refused as malformed.
//
//   - Unless StreamRequestBody is set, Fiber reads the body before any handler runs, even if the verifier then refuses the message for
//     its timestamp.
//   - c.Hostname() follows X-Forwarded-Host, which is not signed, unless EnableTrustedProxyCheck is set.
//   - A request whose Host line and absolute target name different hosts is refused as malformed.
//   - If fasthttp leaves tabs around the value of a signed field, the request is refused as malformed.
//   - With DisableHeaderNormalizing, a relay can change the case of a signed name, so that c.Get does not find it.
//   - fasthttp keeps only one of several lines of some fields (Host, Content-Type and others). The verifier counts all lines that were
//     received.
//   - The header of a verified request has no fields from a trailer (RFC 9110, section 6.5.1). Without StreamRequestBody, fasthttp reads
//     the trailer of a chunked body before any handler runs. Verify then removes its fields, and with them any field that outer
//     middleware has added to such a request. If the header has more lines of a name than were sent, the request is refused as malformed.
//   - The Date of a refusal is fasthttp's own and cannot be set. It is the system clock's, even if sign.Config.Clock is another one.
//     With DisableDefaultDate there is none.
//
// # Versions
//
// Fiber v2 requires fasthttp 1.51, and this module requires 1.58. Older versions may read two requests from what an outer proxy has
// passed on as one, and with StreamRequestBody and ReduceMemoryUsage they read a body from another client's connection.
//
// Newer versions, which Fiber v3 or other modules bring into a program, work as well. Versions differ in what fasthttp itself refuses:
// a request without Host, or a Cookie or Authorization in a trailer. Newer versions stream what a net/http handler flushes
// (middleware/adaptor, and therefore an httputil.ReverseProxy), and do not report that its client has left: the run ends with the
// stream, and is abandoned if the stream is cut short. Fiber's own proxy middleware has the whole answer before it is sent.
//
// # Contexts
//
// The run's context is c.UserContext(). It ends when the lease is lost, and when the handler has returned. c.Context() does neither. If
// the response is a body stream, or the connection is hijacked, the run's context continues after the handler, for as long as the
// request's own. Do not make c.Context() the user context: fasthttp reuses it while a hook or a store may still use it.
package fiberidem
