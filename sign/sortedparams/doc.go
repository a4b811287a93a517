// Package sortedparams has the [sign.Scheme] of gateways that sign their parameters, sorted, followed by the secret: Jeepay, XunhuPay
// and many others, which follow WeChat Pay v2. Package sign checks time, keys and nonces.
//
//	scheme, err := sortedparams.New(sortedparams.Config{InParams: true})
//	…
//	verifier, err := sign.NewVerifier(sign.Config{Keys: ring, Scheme: scheme, Observe: sign.LogEvents(slog.Default(), slog.LevelInfo)})
//
// The signing string is the message's parameters, sorted by the bytes of their names and not encoded, followed by the secret.
// Parameters with an empty value, and the signature itself, are left out:
//
//	amount=5&key_id=demo&nonce=n-0123456789abcdef&timestamp=1700000000&to=bob&key=<secret>
//
// The signature is the HMAC-SHA256 of this string with the same secret, in upper-case hexadecimal. By default, key id, timestamp,
// nonce and signature are in the header fields X-Key-Id, X-Timestamp, X-Nonce and X-Sign; see [Config].InParams. Make the key
// with [sign.NewHMACKey]. The configuration decides the algorithm: a parameter sign_type has no special meaning.
//
// # What is not signed
//
// THE METHOD, THE PATH, THE HOST AND THE HEADER ARE NOT SIGNED. Anyone who relays a signed message can send it to another route of the
// service. Give each API its own key, add a parameter that names the operation, or sign method and path with [Config].Bind. Prefer
// [sign.NewV1] if you can choose.
//
// These are not signed either:
//   - The place of a parameter. Anyone who relays a message can move a parameter from the body to the query, where a handler may not
//     look. Name the place in [Config].Places.
//   - Whether a JSON value is a string, a number or a boolean: "5" and 5 are the same.
//   - Parameters without a value: "" and null can be added and removed. Handlers must treat them as absent.
//   - The order of parameters, and how their values are escaped.
//
// A body of a type other than those below, including multipart forms, is refused ([sign.ReasonUncovered]), because nothing in it would
// be signed. An Idempotency-Key is refused unless [Binding] names it. A Content-Type must name its type in lower case. A
// Content-Encoding is refused.
//
// # Parameters
//
// The query and forms are percent-encoded pairs, joined by &. A JSON body is one object of strings, numbers (compared by their exact
// text: 1.0 and 1 differ), booleans and null. Everything is UTF-8. These are refused as [sign.CodeMalformed]:
//   - a bad escape, or a raw ";", which frameworks drop silently;
//   - two names that some decoder treats as one (amount and Amount, a and a[]);
//   - a name that occurs twice, in one place or in two;
//   - objects and arrays in a JSON object, because the two sides write them differently: send them as strings;
//   - more than 256 parameters.
//
// Values are not encoded, so {a: "1&b=2"} and {a: "1", b: "2"} would have the same signing string. Therefore names must not contain & or
// =, and values must not contain = after an &. The string can then be parsed in only one way: the text between two & is a parameter if
// and only if it contains a =. "a=b", "AT&T" and a URL with one pair in its query are allowed. Percent-encode the & of a URL with more
// pairs. No parameter may have the name of the secret, "key".
//
// # Time and nonce
//
// A message needs a timestamp, in one of the forms that [Config] allows, and a nonce of 16 to 128 characters of A-Z a-z 0-9 . _ ~ -. A
// message without one of them could be repeated forever, and is refused ([sign.CodeMissing]). The body is read before they are checked,
// up to the verifier's limit, even if they are in the header.
//
// XunhuPay sends both (time and nonce_str). Jeepay sends only a time (reqTime): let your own clients add a nonce as another parameter.
// Do not use the time of the payment, such as time_end, as the timestamp: a notification that the gateway repeats after
// [sign.Config].Window would be refused. Query such a gateway for the state of the order instead.
//
// # With a guard inside it
//
// A client signs each retry again. With [Config].InParams, the four parameters of the signature therefore do not count for the guard if
// they are in a query, a form or a JSON body. They are neither in keys made from parameters nor in the fingerprint of a client's key
// (see [sign.Verified].Consumed).
package sortedparams
