// Package sign signs requests, and verifies that a request comes from the holder of a key, unchanged, now, and for the first time. A
// signature protects against tampering; a timestamp and a nonce protect against replay. The package depends on no framework, on no
// store, and not on package core.
//
// A server mounts a [Verifier] with the Verify function of its framework's adapter:
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
//   - A message is one HTTP request as sent. A retry is another message about the same operation.
//   - The client signs messages, and the verifier accepts or refuses them. A sender is a service that sends webhooks.
//   - A scheme defines where the signature is in a message, and what is signed.
//   - The signing string is the text that is signed. RFC 9421 calls it the signature base.
//   - A header field is covered if it is part of the signing string.
//   - A key has an id, which messages name, and an owner, whom the messages belong to. An owner may have several keys.
//   - A ring holds the keys of a verifier in memory. All its keys are live at once, even if several have the same id.
//   - The window is how far a timestamp may be from the verifier's clock. A nonce is text that a key uses once within the window.
//   - A code is the reason for a refusal that the client sees. A reason is the finer one in the Go error.
//   - An event id identifies what a webhook reports, and is the same in all its deliveries. An [Event] describes one message to an
//     observer.
//
// # Schemes
//
//   - [NewV1], the default: HMAC-SHA256 and Ed25519.
//   - HTTP Message Signatures (RFC 9421), including the profiles of UCP, Web Bot Auth and AdCP: package sign/rfc9421.
//   - Webhooks of Stripe, GitHub, Slack, Shopify and ACP, and Standard Webhooks: package sign/webhook.
//   - Sorted parameters, as Jeepay, XunhuPay and other gateways sign them: package sign/sortedparams.
//   - Your own implementation of [Scheme].
//
// A verifier has one scheme, and each key has one algorithm. A message cannot choose another.
//
// # Order of the checks
//
//  1. The size of the header. Target, Host and :authority must name one host, which must be one of [Config].Hosts. Then the form
//     of the signature and of its parameters.
//  2. The timestamp: at most [Config].Window (60 s) from the verifier's clock, in either direction.
//  3. The key: known, not revoked, valid now, and of an algorithm that the scheme uses.
//  4. The body, up to [Config].BodyLimit, its digest, and the signature, which is compared in constant time.
//  5. The nonce: the key's owner is within [Config].NonceQuota, and the key has not used this nonce before. One atomic step
//     marks it as used. It is remembered until the timestamp has left the window by every server's clock ([Config].Margin).
//     Messages without a timestamp ([Signature].NoTimestamp), and some others ([Signature].NoNonce), have no nonce. Neither do
//     webhooks under [Config].GuardedByKey.
//
// A scheme may have a last check ([Demands].Finish).
//
// Because of this order, nobody can use up the nonces of others, and the body of a message that is too old is not read. Package
// sign/sortedparams is the exception: it reads the body first, because the body has parameters. A message with an unknown key passes
// through the same steps as one with a bad signature, and gets the same answer.
//
// # Keys on the web
//
// Package sign/jwk fetches keys that partners publish at URLs. In some schemes, the message names the URL, which is then the owner.
//
// # Answers
//
// The answer to a refused message is a problem (RFC 9457) with a [Code], unless [Config].Refuse makes another answer. The Go error
// also has a [Reason], such as [ReasonUnknownKey] or [ReasonUncovered]. Only [Config].Observe gets the reason, together with the
// redacted signing string, which shows where client and server differ. [LogEvents] logs both.
//
// # Signature and idempotency
//
// A nonce belongs to one message, an Idempotency-Key to one operation. A client that retries an operation signs a new message with a
// new nonce and the same Idempotency-Key. The guard inside the verifier answers with the first response. The guard's user is the
// key's owner ([KeyConfig]; by default the key's id), so the Idempotency-Keys of two owners never meet. A refused message never
// reaches the guard and leaves no record.
//
// # Limits
//
// A message is valid for the host that it names, and so for every service that trusts its Host field: see [Config].Hosts. If a
// message was refused because the nonce store failed (503), anyone who has the message can send it again with the same nonce. A
// [MemoryNonces] serves a single process. Responses are not signed. What a scheme does not sign is not protected: [NewV1] signs
// everything but the header fields that neither [V1Config] nor the client names.
//
// # For adapters
//
// Only adapters need these names. An adapter implements [Source], makes a [Message] from it, calls [Verifier.Verify], writes the
// [Answer] that [Verifier.Answer] returns, and passes on the result with [NewContext].
//
// # For your own schemes
//
// Only implementations of [Scheme] need these names: the methods of [Message] and [Signature], [Additions], [DemandingScheme],
// [Demands], [Errorf], [ParseTimestamp], [NonceOf], [Key.Sign] and [Key.Verify].
package sign
