// Package webhook has the schemes of package sign for webhooks: [Stripe], [GitHub], [Slack], [Shopify], [ACP], and [NewStandard] for
// Standard Webhooks (Svix and others). A server mounts a verifier with one of them, and a guard inside it:
//
//	key, err := webhook.NewSenderKey(sign.KeyConfig{ID: "stripe"}, secret)
//	…
//	verifier, err := sign.NewVerifier(sign.Config{
//		Scheme: webhook.Stripe("stripe"), Keys: sign.Must(sign.NewRing(key)), Window: 5 * time.Minute, GuardedByKey: true,
//	})
//
// # What is signed
//
// [Stripe], [GitHub], [Slack] and [Shopify] sign the body, some of them a timestamp, and nothing else: not the method, the
// path, the query, the host or any other header field. Give each endpoint a secret of its own ([NewSenderKey]), and act only
// on what is signed. A message with a Content-Encoding, an Idempotency-Key or a method other than POST is refused
// ([sign.ReasonUncovered]).
//
// # Events
//
// Most senders deliver an event until they get a success; GitHub delivers it again only when it is asked to. Each delivery is
// another message about the same event, and [sign.Verified].EventID is the same in all of them. It comes from what is signed: the
// id in the body, or a digest of the body. The ids that senders put into the header (X-GitHub-Delivery, X-Shopify-Event-Id) are
// not signed. Whoever has seen a message can send it again under another one. This guard runs an event once and answers later
// deliveries with the first response:
//
//	policy := core.SignedEvent()
//	policy.Name = "stripe"
//
// If the sender signs a timestamp, the verifier also refuses the same message the second time ([sign.CodeReplayed]); the nonce is
// a digest of timestamp and body. Senders take that for a failure: under [sign.Config].GuardedByKey the same message gets the
// guard's answer, too. If the sender signs none, a replay cannot be told from a redelivery, however old it is. In both cases only
// the guard protects, for as long as its record is kept.
//
// # Keys
//
// The keys of [NewSenderKey] and [NewStandardKey] may have short secrets. They sign and verify webhooks only: [sign.Key.Sign] and
// [sign.Key.Verify] reject them.
//
// The schemes also sign, for tests of your endpoint.
package webhook
