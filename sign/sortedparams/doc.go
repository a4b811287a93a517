// Package sortedparams is the [sign.Scheme] of gateways that sign their parameters, sorted, with the secret after them: Jeepay,
// XunhuPay and many others, which have it from WeChat Pay v2. Package sign checks time, keys and nonces.
//
//	scheme, err := sortedparams.New(sortedparams.Config{InParams: true})
//	…
//	verifier, err := sign.NewVerifier(sign.Config{Keys: ring, Scheme: scheme, Observe: sign.LogEvents(slog.Default(), slog.LevelInfo)})
//
// The signing string consists of the message's parameters, sorted by the bytes of their names, not encoded, and the secret after
// them. Parameters with an empty value and the signature itself are left out:
//
//	amount=5&key_id=demo&nonce=n-0123456789abcdef&timestamp=1700000000&to=bob&key=<secret>
//
// The signature is the HMAC-SHA256 of this string with the same secret, in upper-case hexadecimal. By default, key id, timestamp,
// nonce and signature are in the header fields X-Key-Id, X-Timestamp, X-Nonce and X-Sign; see [Config].InParams. The key is
// one of [sign.NewHMACKey]. The configuration decides the algorithm: a parameter sign_type is like any other.
//
// # What is not signed
//
// THE METHOD, THE PATH, THE HOST AND THE HEADER ARE NOT SIGNED. Whoever relays a signed message can send it to another route of
// the service. Give each API a key of its own, have a parameter that names the operation, or sign method and path with
// [Config].Bind. Prefer [sign.NewV1] if you can choose.
//
// These are not signed either:
//   - The place of a parameter. Whoever relays a message can move one from the body to the query, where a handler may not look.
//     Name the place in [Config].Places.
//   - Whether a JSON value is a string, a number or a boolean: "5" and 5 are the same.
//   - Parameters without a value: "" and null can be added and removed. Handlers must treat them as absent.
//   - The order of parameters, and how their values are escaped.
//
// A body of another type is refused ([sign.ReasonUncovered]), because nothing of it would be signed. That includes multipart
// forms. An Idempotency-Key is refused too, unless [Binding] names it. A Content-Type must name its type in lower case, and a
// Content-Encoding is refused.
//
// # Parameters
//
// The query and forms are percent-encoded pairs, joined by &. A bad escape or a raw ";", which frameworks drop silently, is refused.
// So are two names that some decoder treats as one (amount and Amount, a and a[]). A JSON body is one object of strings, numbers
// (by their exact text: 1.0 and 1 are two values), booleans and null. Objects and arrays inside it are refused, because the two
// sides write them differently; send them as strings. Everything is UTF-8. A message has at most 256
// parameters. A name that occurs twice, in one place or in two, is refused. All of these refusals are [sign.CodeMalformed].
//
// Values are not encoded, so {a: "1&b=2"} and {a: "1", b: "2"} would have the same signing string. Therefore names contain no & and
// no =, and values no = after an &. Then there is only one way to take the string apart: between two & there is a parameter exactly
// if there is a = between them. "a=b", "AT&T" and a URL with one pair in its query are allowed. Percent-encode the & of
// a URL with more pairs. No parameter may have the name of the secret, "key".
//
// # Time and nonce
//
// A message needs a timestamp, in one of the forms that [Config] has, and a nonce of 16 to 128 characters of A-Z a-z 0-9 . _ ~ -.
// The body is read before they are checked, up to the verifier's limit, also if they are in the header. A message without one
// of them could be sent again for ever, and is refused ([sign.CodeMissing]). XunhuPay sends both (time and nonce_str). Jeepay sends
// a time alone (reqTime): your own clients add a nonce as one more parameter. A time of the payment, such as time_end, is not that
// of the signature: a notification that the gateway repeats after [sign.Config].Window would be refused. Ask such a gateway
// instead what has become of the order.
//
// # With a guard inside it
//
// A client signs each retry anew. With [Config].InParams, the four parameters of the signature therefore do not count for the
// guard, if they are in a query, a form or a JSON body: they are neither in keys made of parameters nor in the fingerprint of a
// client's key (see [sign.Verified].Consumed).
package sortedparams
