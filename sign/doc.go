// Package sign verifies that a request comes from the holder of a key, unchanged, now, and for the first time. A signature
// protects against tampering, a timestamp and a nonce against replay. The package knows no framework and no store, and does
// not import package core.
//
// A server mounts a [Verifier] through the adapter of its framework, each of which has a Verify:
//
//	key, err := sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, secret)
//	…
//	verifier, err := sign.NewVerifier(sign.Config{
//		Keys: sign.Must(sign.NewRing(key)), Nonces: engine.Nonces(), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
//	})
//	…
//	r.POST("/webhooks", ginidem.Verify(verifier), ginidem.New(webhooks), receive)
//
// A client signs through a [Transport], or signs a single request with [Request]:
//
//	client := &http.Client{Transport: &sign.Transport{Key: key}}
//
// # Words
//
//   - A message is one HTTP request as it was sent. A retry is another message about the same operation.
//   - The client signs messages, the verifier accepts or refuses them. A sender is a service that sends webhooks.
//   - A scheme says where the signature is in a message, and what is signed.
//   - The signing string is the text that is signed. RFC 9421 calls it the signature base.
//   - A header field is covered if it is part of the signing string.
//   - A key has an id, which messages name, and an owner, whose requests they are. An owner may have several keys.
//   - A ring holds the keys of a verifier in memory. Its keys are live together, also under one id.
//   - The window is how far a timestamp may be from the verifier's clock. A nonce is text that a key uses once in it.
//   - A code is the reason for a refusal as the client sees it, a reason is the finer one in the Go error.
//   - An event id names what a webhook reports, in all its deliveries. An [Event] tells an observer about one message.
//
// # Schemes
//
//   - [NewV1], the default: HMAC-SHA256 and Ed25519.
//   - HTTP Message Signatures (RFC 9421): package sign/rfc9421, also in the profiles of UCP, Web Bot Auth and AdCP.
//   - Webhooks of Stripe, GitHub, Slack, Shopify and ACP, and Standard Webhooks: package sign/webhook.
//   - Sorted parameters, as Jeepay, XunhuPay and other gateways sign them: package sign/sortedparams.
//   - An implementation of [Scheme] of your own.
//
// A verifier has one scheme, and each key has one algorithm. A message chooses neither.
//
// # Order of the checks
//
//  1. The size of the header. Target, Host and :authority must name one host, and that must be one of [Config].Hosts. Then
//     the form of the signature and of what belongs to it.
//  2. The timestamp: at most [Config].Window (60 s) from the verifier's clock, in either direction.
//  3. The key: known, not revoked, valid now, and of an algorithm that the scheme uses.
//  4. The body, up to [Config].BodyLimit, its digest, and the signature, which is compared in constant time.
//  5. The nonce: the key's owner is within [Config].NonceQuota, and the key has not used this nonce before. One atomic step
//     marks it as used. It is remembered until the timestamp has left the window by every server's clock ([Config].Margin).
//     Messages without a timestamp ([Signature].NoTimestamp), and some others ([Signature].NoNonce), have no nonce; webhooks
//     have none under [Config].GuardedByKey.
//
// A scheme may have a last check ([Demands].Finish).
//
// So nobody can use up the nonces of others, and a message that is too old costs no reading of its body. Package
// sign/sortedparams is the exception: it reads the body, which holds parameters, first. A message of an unknown key passes
// through the same steps as one with a bad signature, and gets the same answer.
//
// # Keys on the web
//
// Package sign/jwk finds keys at URLs, for partners who publish them. Messages of some schemes say where; the URL is then the owner.
//
// # Answers
//
// The answer to a refused message is a problem (RFC 9457) with a [Code], unless [Config].Refuse makes another one. The Go
// error also has a [Reason], such as [ReasonUnknownKey] or [ReasonUncovered]. Only [Config].Observe sees it, together with
// the redacted signing string, which shows where client and server differ: [LogEvents] logs both.
//
// # Signature and idempotency
//
// A nonce belongs to one message, an Idempotency-Key to one operation. A client that retries an operation signs a new message
// with a new nonce and the same Idempotency-Key. The guard inside the verifier answers it with the first response. Its user
// is the key's owner ([KeyConfig]; by default the key's id), so the Idempotency-Keys of two owners never meet. A refused
// message never reaches the guard and leaves no record.
//
// # Limits
//
// A message is valid for the host that it names, and so for every service that trusts its Host field; see [Config].Hosts. A
// message that was refused because the nonce store failed (503) can be sent again with the same nonce by whoever has it. A
// [MemoryNonces] serves a single process. Responses are not signed. What a scheme does not sign is not protected: [NewV1] signs
// everything but the header fields that neither [V1Config] nor the client names.
//
// # For adapters
//
// Only adapters need these names: an adapter implements [Source], makes a [Message] of it, calls [Verifier.Verify], writes the
// [Answer] that [Verifier.Answer] returns, and passes on what is verified with [NewContext].
//
// # For schemes of your own
//
// Only implementations of [Scheme] need these names: the methods of [Message] and [Signature], [Additions], [DemandingScheme],
// [Demands], [Errorf], [ParseTimestamp], [NonceOf], [Key.Sign] and [Key.Verify].
package sign
