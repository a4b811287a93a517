// Package sortedparams signs requests, and verifies them, as WeChat Pay v2 does, and the many gateways that do
// likewise. It is a [sign.Scheme], with everything that package sign does about time, keys and nonces.
//
//	scheme, err := sortedparams.New(sortedparams.Options{InParams: true})
//	…
//	verifier, err := sign.NewVerifier(sign.Config{Keys: ring, Scheme: scheme})
//
// Signed are the parameters of the message, those with an empty value and the signature itself left out, sorted
// by the bytes of their names, not encoded, and after them the secret:
//
//	amount=5&key_id=demo&nonce=n-0123456789abcdef&timestamp=1700000000&to=bob&key=<secret>
//
// The signature is the HMAC-SHA256 of this under the same secret, in upper-case hexadecimal digits. By
// default X-Key-Id, X-Timestamp, X-Nonce and X-Sign are header fields; see [Options].InParams. The
// key is one of [sign.NewHMACKey]. The algorithm is the configuration's: a parameter sign_type is one like any other.
//
// # What it does not sign
//
// THE METHOD, THE PATH, THE HOST AND THE HEADER ARE NOT SIGNED. Who relays a signed message can send
// it to another route of the service: give each API a key of its own, have a parameter that
// says what is asked for, or sign method and path by [Options].Bind. Prefer [sign.V1] where you
// may choose.
//
// Nor is it signed:
//   - in which place a parameter stands: who relays a message can move one from the body to the query,
//     where a handler may not look. Name the place by [Options].Places;
//   - whether a JSON value is a string, a number or a boolean: "5" and 5 are the same;
//   - parameters without a value: "", null and <a></a> can be added and taken away. Handlers must not
//     tell them from absent ones;
//   - the order of parameters, and how the values are escaped.
//
// A body of any other type is refused with [sign.ReasonUncovered], multipart forms with their files among them:
// nothing of it would be signed. So is an Idempotency-Key, unless [Binding] names it.
// A Content-Type has to name its type in lower case; a Content-Encoding is refused.
//
// # Parameters
//
// The query and forms are pairs with & in between, percent-encoded; a bad escape or a raw ";" is refused, which
// frameworks drop silently. Names that some decoder takes for one (amount and Amount, a and a[]) are
// refused, too. A JSON body is one object of strings, numbers (by their exact text: 1.0
// and 1 are two values), booleans and null; objects and arrays within it are refused, as their
// texts differ between the two sides; send them as strings. An XML body is
// <xml><name>value</name>…</xml>, also with CDATA, and with a declaration in front; names are letters, digits, _,
// - and full stops. DOCTYPE, comments, attributes, nested elements and
// entities other than &lt; &gt; &amp; &apos; &quot; and &#…; are refused. Everything is
// UTF-8. A message has at most 256 parameters. A name that is there twice, in one place or in two, is
// refused. Faults of form are [sign.CodeMalformed].
//
// As values are not encoded, {a: "1&b=2"} and {a: "1", b: "2"} would be signed by one string. Therefore names
// have no & and no =, and values have no = after an &; that leaves one way to take the string
// apart: what has a = between two & is a parameter. "a=b", "AT&T" and a URL with one pair in its query
// are fine. For those with more there is [Options].InsecureAmpersands. No parameter may be named
// as the secret is, "key".
//
// # Time and nonce
//
// A message needs a timestamp, of which [Options] knows several forms, and a nonce, of 16 to 128
// characters as [sign.CheckNonce] has them. The body is read before either is looked at, up to the
// verifier's limit, since parameters stand there. The calls of WeChat Pay v2 have a nonce_str, and some of them
// no time: such a message could be sent again for ever, and is refused ([sign.CodeMissing]); clients of
// one's own add a timestamp, which is then a parameter as any other. time_end, in payment
// notifications, is when the payment was made, not when the message was signed: if it is made the timestamp,
// a notification that the gateway repeats later than [sign.Config].Window is refused. There, ask
// the gateway instead (orderquery).
//
// # With a guard behind it
//
// A client that tries again signs anew. With [Options].InParams, what belongs to the signature (the four
// parameters under their names) therefore does not count for the guard, in a query, a form or a JSON body: not for keys that are
// made of parameters, and not in the fingerprint of a client's key. [sign.Verified].Consumed says so.
//
// An XML body counts with all its bytes, nonce included, so that each try would be another operation, or
// key_reused: take the key from what names the operation, out_trade_no, by core.Func, and let it alone
// decide (core.Policy.AnyParameters).
package sortedparams
