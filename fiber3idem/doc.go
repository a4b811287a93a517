// Package fiber3idem mounts a [core.Guard] on Fiber v3:
//
//	engine := core.MustNew(core.Config{User: fiber3idem.UserFromLocals("user")})
//	orders := engine.MustGuard(core.Policy{})
//
//	app.Post("/orders", fiber3idem.New(orders), createOrder)
//
// Mount it inside recovery and authentication, and on the routes themselves. The package is a separate module. fiberidem is the
// same for Fiber v2, with the same keys.
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
//	app.Post("/webhooks", fiber3idem.Verify(verifier), fiber3idem.New(hooks), receive)
//
// A signature covers the bytes that were sent. If signed requests may be multipart forms, set DisablePreParseMultipartForm: otherwise
// Fiber drops those bytes, and the request is refused as malformed.
//
//   - Unless StreamRequestBody is set, Fiber reads the body before any handler runs, even if the verifier then refuses the message for
//     its timestamp.
//   - c.Host() and c.Hostname() follow X-Forwarded-Host, which is not signed, if TrustProxy is set and the proxy is trusted.
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
// # net/http
//
// fasthttp streams what a net/http handler flushes (an httputil.ReverseProxy, for example), and does not report that its client has
// left: the run ends with the stream, and is abandoned if the stream is cut short. Fiber's own proxy middleware has the whole answer
// before it is sent.
//
// # Contexts
//
// The run's context is c.Context(). It ends when the lease is lost, and when the handler has returned. c itself, which is also a
// context.Context, and c.RequestCtx() do neither. If the response is a body stream (SendStream, SendStreamWriter), or the connection is
// hijacked, the run's context continues after the handler, for as long as the request's own. Do not make c or c.RequestCtx() the
// request's context: they are reused while a hook or a store may still use them.
//
// # Connections
//
// c.Drop closes the connection, but Fiber still has a response. If the handler has set none, that looks like a success without a body,
// and a retry gets an empty 200. Before c.Drop, call [core.Run.Release] of [Run], or [core.Run.Abandon] if the operation may have taken
// effect. c.End sends the response before the run is settled: a retry that comes at once is refused as in progress.
//
// # Timeouts
//
// Fiber's timeout answers and lets its handler run on. Mount it inside the guard, around the handler alone. The claim then lasts for
// one more lease, as after a crash, because nobody knows what the handler will have done. Do not mount it outside a guard: it writes to
// the response concurrently with the handler.
package fiber3idem
