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
// [Stripe], [GitHub], [Slack] and [Shopify] sign the body. Some also sign a timestamp. They sign nothing else: not the method, the
// path, the query, the host or any other header field. Give each endpoint its own secret ([NewSenderKey]), and act only on what is
// signed. A message with a Content-Encoding, an Idempotency-Key or a method other than POST is refused ([sign.ReasonUncovered]).
//
// # Events
//
// Most senders deliver an event until they get a success. GitHub delivers it again only on request. Each delivery is another message
// about the same event, and [sign.Verified].EventID is the same in all of them. It comes from signed content: the id in the body, or a
// digest of the body. The ids that senders put into the header (X-GitHub-Delivery, X-Shopify-Event-Id) are not signed: anyone who has
// seen a message can send it again under another id. A guard with this policy runs an event once and answers later deliveries with the
// first response:
//
//	policy := core.SignedEvent()
//	policy.Name = "stripe"
//
// If the sender signs a timestamp, the verifier also refuses a repeated message ([sign.CodeReplayed]), with a digest of timestamp and
// body as the nonce. Senders take that for a failure. Set [sign.Config].GuardedByKey to let a repeated message get the guard's answer
// as well. If the sender signs no timestamp, a replay cannot be distinguished from a redelivery, however old it is. With GuardedByKey,
// or without a timestamp, only the guard protects, for as long as its record is kept.
//
// # Keys
//
// The keys of [NewSenderKey] and [NewStandardKey] may have short secrets. They sign and verify webhooks only: [sign.Key.Sign] and
// [sign.Key.Verify] reject them.
//
// The schemes also sign messages, for tests of your endpoint.
package webhook
