// Package rfc9421 signs requests, and verifies them, by HTTP Message Signatures (RFC 9421) with a
// Content-Digest (RFC 9530), in a strict profile: the way to choose where the other side has a
// library for that RFC. It is a [sign.Scheme], with everything that package sign does about
// time, keys and nonces.
//
// The client:
//
//	scheme, err := rfc9421.New(rfc9421.Options{})
//	…
//	client := &http.Client{Transport: &sign.Transport{Key: key, Options: &sign.RequestOptions{Scheme: scheme}}}
//
// The server:
//
//	scheme, err := rfc9421.New(rfc9421.Options{})
//	…
//	verifier, err := sign.NewVerifier(sign.Config{Keys: ring, Scheme: scheme})
//	…
//	mux.Handle("POST /webhooks", httpidem.Verify(verifier)(receive))
//
// Keys are of any kind that package sign has: hmac-sha256, ed25519, ecdsa-p256-sha256 and
// rsa-pss-sha512. A signed request has three fields more:
//
//	Content-Digest: sha-256=:KbsQ…k8=:
//	Signature-Input: sig1=("@method" "@authority" "@path" "@query" "content-digest" "content-type");created=1700000000;keyid="demo";alg="hmac-sha256";nonce="f3a0…"
//	Signature: sig1=:3UjN…zg==:
//
// # What must be covered
//
//   - The method: "@method".
//   - The host: "@authority", in lower case and without the default port of the scheme. The scheme is
//     https if the adapter saw TLS, or [Options].HTTPS is set. [sign.Config].Host takes the place
//     of what was sent.
//   - The path: "@path"; and the query: "@query", with its question mark, which also stands for no
//     query at all. Both are as sent; nothing is decoded or put right.
//   - In place of path and query "@request-target", which is the target as sent; or in place of host,
//     path and query "@target-uri". "@scheme" may be covered, too, and is by "@target-uri".
//   - The body: "content-digest", with sha-256, sha-512, or both; each of them must be the body's. Weak and
//     unknown digests may stand beside, and count for nothing. Only a request without a body may
//     do without, and then has no Content-Digest at all. This package always signs one.
//   - Idempotency-Key, Content-Type (but see [Options].UnsignedContentType) and Content-Encoding if they are
//     present, and what [Options].Cover and [Options].Require name.
//
// Any other header field may be covered, but for those of one connection, Host, and the signature's
// own. A covered field must be there, in a single line: RFC 9421 would join several by commas, but
// then "1, 2" in one line and 1 and 2 in two are the same to the signature, and not to the
// handler. Values must be ASCII without controls, so that each has its line in what is signed.
//
// # What is not taken
//
//   - Parameters of components (sf, bs, key, req, tr, and name of "@query-param"): there are two
//     values then, one that is signed and one that the handler sees. "@status" is a response's.
//   - Signatures without created, keyid or nonce (16 to 128 of A-Z a-z 0-9 . _ ~ - + / =); an alg that is not
//     the key's; an empty alg or tag; parameters that are not in the RFC. With expires, the sender makes the
//     verifier's window shorter. A message's tag must be [Options].Tag.
//   - Several signatures, unless [Options].Label says which one counts. Signature-Input, Signature and
//     Content-Digest in more than one line, always.
//   - Labels, components or parameters that are there twice, and base64 with bits to spare. More
//     than 64 components, and more than 300 parts of a field that is not serialised or has several signatures.
//
// Blanks where structured fields (RFC 8941) allow them are taken: what is signed is the serialised
// form of what was parsed.
//
// Outside, what is not covered, another body, another algorithm and another signature look the same
// ([sign.CodeInvalid]); the Go error tells them apart.
package rfc9421
