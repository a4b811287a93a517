// Package sign tells whether a request is what the holder of a key has sent, now, and for the
// first time: a signature against tampering, a timestamp and a nonce against replay. It knows no
// framework, no store and nothing of package core.
//
// The server mounts a [Verifier]; adapters do so for their frameworks (httpidem.Verify,
// ginidem.Verify, echoidem.Verify, fiberidem.Verify):
//
//	key, err := sign.NewHMACKey("demo", secret)
//	…
//	verifier, err := sign.NewVerifier(sign.Config{Keys: sign.MustRing(key), Nonces: engine.Nonces()})
//	…
//	r.POST("/webhooks", ginidem.Verify(verifier), ginidem.New(webhooks), receive)
//
// The client signs through a [Transport], or each request by [Request]:
//
//	client := &http.Client{Transport: &sign.Transport{Key: key}}
//
// # Schemes
//
// A [Scheme] says where in a message the signature stands and what is signed: [V1], the default,
// for HMAC-SHA256 and Ed25519 keys; HTTP Message Signatures (RFC 9421) in package sign/rfc9421;
// [StandardWebhooks]; [Stripe], [GitHub], [Slack] and [Shopify], for webhooks of these senders; and package sign/sortedparams, for
// gateways that sign sorted parameters. A verifier knows one scheme, and the algorithm belongs to the key: a message chooses
// neither. A scheme of your own is an implementation of [Scheme].
//
// # What is checked, in this order
//
//  1. The header's size; that target, Host and :authority name one host, and one of [Config].Hosts; then the
//     form of the signature and what stands beside it.
//  2. The timestamp: no further from the verifier's clock than [Config].Window (60 s), in either
//     direction.
//  3. The key: known, not revoked, valid now, and of the right kind.
//  4. The body, up to [Config].BodyLimit, its digest, and the signature, in constant time.
//  5. The nonce, which every scheme must set unless its messages are [Signature].Undated: the key's owner has not used up a
//     quota ([Config].NonceQuota), so that one partner's nonces leave room for others', and the nonce is unused by this key. It is marked as used in one atomic step, and remembered until the
//     message's timestamp has left the window by everybody's clock ([Config].Margin).
//
// So nobody can use up another's nonce, or make the verifier read a body for a message that is
// too old (except under sign/sortedparams, where parameters stand in the body). A message of an unknown key goes through the same steps as one with a bad signature, and
// gets the same answer.
//
// # Answers
//
// A message that is refused gets a problem (RFC 9457) with one of the [Code]s, or what
// [Config].Refuse makes of it. The Go error has a finer [Reason] ([ReasonUnknownKey],
// [ReasonUncovered], …), which goes to [Config].Observe only; so does the signing string, redacted, which
// tells where client and server differ. [Verifier.Refusal] is the one place that makes answers of errors.
//
// # Signature and idempotency
//
// A nonce is for one message, an Idempotency-Key for one operation. A client that tries an operation
// again signs anew, with another nonce and the same Idempotency-Key, and gets the first answer from
// the guard, which is mounted after the verifier. The key's owner ([OwnedBy]; its id, unless you say otherwise)
// is then the guard's default user, so that the Idempotency-Keys of two owners never meet. A failed signature does not reach the guard:
// it leaves no record.
//
// # What it cannot do
//
// A message is good for the host that it names, and so for every service that takes its word for it; see
// [Config].Hosts. A message that was refused for want of a store (503) may come again with the same nonce, from whoever
// has it. A [MemoryNonces] knows nothing of another process. Responses are not signed. And what a
// scheme does not sign is not protected: V1 signs everything but the header fields that
// [V1Options] and the client leave out.
package sign
