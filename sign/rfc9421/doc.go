// Package rfc9421 has the [sign.Scheme] for HTTP Message Signatures (RFC 9421) with a Content-Digest (RFC 9530), in a strict profile.
// Use it if the other side has a library for that RFC. Package sign checks time, keys and nonces.
//
// The client:
//
//	scheme, err := rfc9421.New(rfc9421.Config{})
//	…
//	client := &http.Client{Transport: &sign.Transport{Key: key, Options: sign.RequestOptions{Scheme: scheme}}}
//
// The server:
//
//	scheme, err := rfc9421.New(rfc9421.Config{})
//	…
//	verifier, err := sign.NewVerifier(sign.Config{Keys: ring, Scheme: scheme, Observe: sign.LogEvents(slog.Default(), slog.LevelInfo)})
//	…
//	mux.Handle("POST /webhooks", httpidem.Verify(verifier)(receive))
//
// It supports all algorithms of package sign: hmac-sha256, ed25519, ecdsa-p256-sha256 and rsa-pss-sha512. A signature adds three
// header fields:
//
//	Content-Digest: sha-256=:KbsQ…k8=:
//	Signature-Input: sig1=("@method" "@authority" "@path" "@query" "content-digest" "content-type");
//	  created=1700000000;keyid="demo";alg="hmac-sha256";nonce="f3a0…"
//	Signature: sig1=:3UjN…zg==:
//
// # What must be covered
//
//   - The method: "@method".
//   - The host: "@authority", in lower case and without the default port of the scheme. The scheme is https if the adapter
//     saw TLS or if [Config].HTTPS is set. If [sign.Config].Host is set, it replaces the host that was sent.
//   - The path: "@path". The query: "@query", with its question mark, even if there is no query. Both are as sent. Nothing is decoded
//     or normalised.
//   - "@request-target", which is the target as sent, may replace path and query. "@target-uri" may replace host, path and query.
//     "@scheme" may also be covered; "@target-uri" includes it.
//   - The body: "content-digest" with sha-256, sha-512 or both. Each must be the digest of the body. Weak and unknown digests
//     next to them are ignored. Only a request without a body may omit "content-digest", and it must then have no Content-Digest at
//     all. This package always signs one.
//   - Idempotency-Key, Content-Type (but see [Config].UnsignedContentType) and Content-Encoding if they are present, and the
//     fields of [Config].Cover and [Config].Require.
//
// Any other header field may be covered, except those of one connection, Host, and the signature's own. A covered field must be
// present in a single line. RFC 9421 joins several lines with commas, so "1, 2" in one line and 1 and 2 in two lines would have the
// same signature, although handlers see different values. Values must be ASCII without control characters, so that each has one line
// in the signature base.
//
// # What is refused
//
//   - Parameters of components (sf, bs, key, req, tr, and name of "@query-param"), because the signed value would differ from the one
//     that the handler sees. "@status", which belongs to responses.
//   - Signatures without created, keyid or nonce (16 to 128 of A-Z a-z 0-9 . _ ~ - + / =). An alg other than the key's. An empty alg or
//     tag, and a tag other than [Config].Tag. Parameters that the RFC does not define.
//   - Several signatures, unless [Config].Label names the one to verify, but see [UCP] and [WebBotAuth].
//   - Signature-Input, Signature or Content-Digest in several lines.
//   - Labels, components or parameters that occur twice, and base64 whose unused bits are not zero.
//   - More than 64 components. More than 300 parts in a field that is not in its serialised form, or that has several signatures.
//   - Therefore also the messages of Web Bot Auth, UCP and AdCP, which have their own profiles.
//
// Optional white space of structured fields (RFC 8941) is accepted. The signature base contains the serialised form of what was
// parsed. The parameter expires can only shorten the verifier's window.
//
// # Published profiles
//
// [UCP], [WebBotAuth], [WebBotAuthMeunier], [AdCP], [AdCP31] and [AdCPWebhooks] return the configurations of published protocols. The
// documentation of each says what it requires and what it leaves open. Everything else is as above: one signature, or that of
// [Config].Label, unless the profile says otherwise; no parameters of components, except key of signature-agent; fields in single
// lines; nothing that the RFC does not define. The profiles assume that the client's URL is https, also behind a proxy. Clear
// [Config].HTTPS to try them without TLS.
//
// A component that is not covered, another body, another algorithm and a bad signature look the same to the client
// ([sign.CodeInvalid]), except under AdCP. The [sign.Reason] of the Go error distinguishes them.
package rfc9421
