package adaptertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
)

// nonceOf is an attack with a nonce of the wrong form, properly signed.
func nonceOf(name, why, nonce string, w verdict) attack {
	return single(name, why, good.with(set("X-Nonce", nonce)), w)
}

// fails is a step that makes the nonce store fail.
func fails(f func(context.Context) error) attackFunc {
	return func(p *attackRun) { p.e.nonces.failing(f) }
}

// isDown is what a store that is not there says. It is no business of a client's.
func isDown(context.Context) error { return errors.New("dial tcp 10.0.0.7:6379: connection refused") }

func isReadOnly(context.Context) error {
	return errors.New("READONLY You can't write against a read only replica.")
}

// isSlow answers when nobody waits any more. A verifier without a deadline gets an answer some time, so
// that it is found out and does not hang.
func isSlow(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return ctx.Err()
}

var nonceGroups = []attackGroup{
	{
		name: "nonces",
		attacks: []attack{
			{
				name:  "sent again",
				why:   "the same bytes again are a replay, however good the signature is",
				steps: []attackStep{sendSigned{as: "a", request: good, want: accepted}, resend{as: "a", want: nonceUsed}, resend{as: "a", want: nonceUsed}},
			},
			{
				name: "sent again until it has left the window",
				why:  "a timestamp may lie W ahead, so a nonce is kept until its timestamp has left the window: for up to 2W",
				steps: []attackStep{
					sendSigned{as: "a", request: good.with(secondsAhead(window)), want: accepted},
					clockAt(time.Second), resend{as: "a", want: nonceUsed},
					clockAt(window * time.Second), resend{as: "a", want: nonceUsed},
					clockAt((window + 1) * time.Second), resend{as: "a", want: nonceUsed},
					clockAt(2*window*time.Second - 1), resend{as: "a", want: nonceUsed},
					clockAt(2 * window * time.Second), resend{as: "a", want: nonceUsed},
					clockAt(2*window*time.Second + 999*time.Millisecond), resend{as: "a", want: nonceUsed},
					clockAt((2*window + 1) * time.Second), resend{as: "a", want: expired},
				},
			},
			{
				name: "an old message sent again at once",
				why:  "the nonce of a message that is W old is kept for the rest of its last second",
				steps: []attackStep{
					sendSigned{as: "a", request: good.with(secondsAhead(-window)), want: accepted},
					clockAt(999 * time.Millisecond), resend{as: "a", want: nonceUsed},
					clockAt(time.Second), resend{as: "a", want: expired},
				},
			},
			{
				name: "the clock goes back",
				why:  "clocks are put right, and those of two servers differ: the margin keeps nonces a little longer than the window",
				steps: []attackStep{
					clockAt(20 * time.Second), sendSigned{as: "a", request: good.with(secondsAhead(-window + 20)), want: accepted},
					clockAt(25 * time.Second), resend{as: "a", want: expired},
					clockAt(20 * time.Second), resend{as: "a", want: nonceUsed},
				},
			},
			{
				name: "a victim's nonce",
				why:  "a nonce is used up by a valid signature only: else anybody could use up a victim's",
				steps: []attackStep{
					prepare{as: "a", request: good},
					resend{as: "a", want: badMAC, changes: []change{signature(zeros)}},
					resend{as: "a", want: badMAC, changes: []change{flip(0)}},
					resend{as: "a", want: badMAC, changes: []change{target("/transfers/other")}},
					resend{as: "a", want: accepted},
					resend{as: "a", want: nonceUsed},
				},
			},
			{
				name: "another signature with the same nonce",
				why:  "a nonce is used up for all messages of its key, not for the one message",
				steps: []attackStep{
					sendSigned{request: good.with(set("X-Nonce", "n-0123456789abcdef")), want: accepted},
					sendSigned{request: good.with(set("X-Nonce", "n-0123456789abcdef"), body(`{"amount":6,"to":"bob"}`)), want: nonceUsed},
					sendSigned{request: good.with(set("X-Nonce", "n-0123456789abcdef"), secondsAhead(5)), want: nonceUsed},
				},
			},
			{
				name: "the same nonce under two key ids",
				why:  "nonces belong to a key id: one client cannot use up another's",
				steps: []attackStep{
					sendSigned{request: good.with(set("X-Nonce", "two-ids-0123456789")), want: accepted},
					sendSigned{request: good.with(by(bob), set("X-Nonce", "two-ids-0123456789")), want: accepted},
					sendSigned{request: good.with(by(bob), set("X-Nonce", "two-ids-0123456789")), want: nonceUsed},
				},
			},
			{
				name: "key ids and nonces that join to the same",
				why:  "key id and nonce are stored so that demo with b.0123… is not demo.b with 0123…",
				steps: []attackStep{
					sendSigned{request: good.with(set("X-Nonce", "b.0123456789abcdef")), want: accepted},
					sendSigned{request: good.with(by(dotted), set("X-Nonce", "0123456789abcdef")), want: accepted},
					sendSigned{request: good.with(set("X-Nonce", "b-0123456789abcdef")), want: accepted},
					sendSigned{request: good.with(by(dashed), set("X-Nonce", "0123456789abcdef")), want: accepted},
					sendSigned{request: good.with(set("X-Nonce", "b0123456789abcdef")), want: accepted},
					sendSigned{request: good.with(by(joined), set("X-Nonce", "0123456789abcdef")), want: accepted},
				},
			},
			{
				name: "nonces that differ in case",
				why:  "nonces are compared exactly: a store that ignores case would refuse a good message",
				steps: []attackStep{
					sendSigned{request: good.with(set("X-Nonce", "case-abcdefghijklm")), want: accepted},
					sendSigned{request: good.with(set("X-Nonce", "case-ABCDEFGHIJKLM")), want: accepted},
				},
			},
			nonceOf("15 characters", "a nonce has at least 16 characters", "0123456789abcde", malformed),
			nonceOf("16 characters", "a nonce of 16 characters is allowed", "0123456789ABCDEF", accepted),
			nonceOf("128 characters", "a nonce of 128 characters is allowed", strings.Repeat("0123456789._~-Az", 8), accepted),
			nonceOf("129 characters", "a nonce has at most 128 characters", strings.Repeat("0123456789._~-Az", 8)+"x", malformed),
			nonceOf("a megabyte", "a nonce has at most 128 characters: it is stored", strings.Repeat("n", 1<<20), malformed.orFront()),
			nonceOf("empty", "an empty nonce is treated as a missing one", "", missing),
			single("missing", "a nonce is required: without one nobody can tell a replay", good.with(drop("X-Nonce")), missing),
			nonceOf("control character", "a nonce is made of the unreserved characters of RFC 3986, so that it cannot end a line of a log", "n-0123456789\x01abcdef", malformed.orFront()),
			nonceOf("DEL", "a nonce is made of the unreserved characters of RFC 3986, so that it cannot end a line of a log", "n-0123456789\x7fabcdef", malformed.orFront()),
			nonceOf("NUL", "a NUL is a byte like any other: nothing ends at it", "n-0123456789abcdef\x00x", malformed.orFront()),
			nonceOf("tab", "a nonce has no space inside", "n-0123456789\tabcdef", malformed),
			nonceOf("blank", "a nonce has no space inside", "n-0123456789 abcdef", malformed),
			nonceOf("comma", "a nonce is no list", "n-0123456789,abcdef", malformed),
			nonceOf("semicolon", "a nonce has no separators", "n-0123456789;abcdef", malformed),
			nonceOf("colon", "a nonce has no colon, which separates keys in stores", "n-0123456789:abcdef", malformed),
			nonceOf("slash", "a nonce has no separators", "n-0123456789/abcdef", malformed),
			nonceOf("braces", "a nonce has no braces, which Redis Cluster takes for a hash tag", "{n-0123456789abcdef}", malformed),
			nonceOf("plus and equals", "a nonce is made of the unreserved characters of RFC 3986, which base64 is not", "n-0123456789ab+cd==", malformed),
			nonceOf("percent-escape", "the signature covers the bytes as sent: nothing is decoded", "n-0123456789%61bcdef", malformed),
			nonceOf("beyond ASCII", "a nonce is ASCII: one letter in two forms would be two nonces", "n-0123456789abcdéf", malformed.orFront()),
			nonceOf("not UTF-8", "a nonce is ASCII: stores differ in what they make of other bytes", "n-0123456789abcd\xff\xfe", malformed.orFront()),
		},
	},
	{
		name:   "nonce store",
		change: func(_ *signedEnv, s *service) { s.sign.StoreTimeout = 20 * time.Millisecond },
		attacks: []attack{
			{
				name: "down",
				why:  "a store that fails is 503, to be tried again; and none of its words go out",
				steps: []attackStep{
					prepare{as: "a", request: good},
					fails(isDown), resend{as: "a", want: unavailable},
					fails(nil), resend{as: "a", want: accepted}, resend{as: "a", want: nonceUsed},
				},
			},
			{
				name:  "read-only",
				why:   "a store that cannot write is 503: it cannot tell the first use of a nonce from the second",
				steps: []attackStep{fails(isReadOnly), sendSigned{request: good, want: unavailable}, sendSigned{request: good, want: unavailable}},
			},
			{
				name:  "slow",
				why:   "a store that does not answer has a deadline (Config.StoreTimeout), and then it is 503",
				steps: []attackStep{fails(isSlow), sendSigned{request: good, want: unavailable}},
			},
			{
				name: "not asked",
				why:  "a bad signature is refused before the store is asked",
				steps: []attackStep{
					fails(isDown), sendSigned{request: good.then(signature(zeros)), want: badMAC},
					sendSigned{request: good.with(secondsAhead(-window - 1)), want: expired},
				},
			},
		},
	},
	{
		name: "a full memory",
		change: func(e *signedEnv, s *service) {
			e.nonces, e.memory = nil, &sign.MemoryNonces{Max: 1}
			s.sign.Nonces = roomUnknown{e.memory} // so that the quota does not come first
		},
		attacks: []attack{{
			name: "refuses",
			why:  "a bounded store must not forget a nonce early to make room: its message could be sent again",
			steps: []attackStep{attackFunc(func(p *attackRun) {
				places := 0
				for n := 0; n < 1000; n++ {
					m := good.message()
					r, err := p.roundTrip(m)
					if err != nil {
						p.problem("%v", err)
						return
					}
					if r.status != 200 {
						p.checkRefusal(r, unavailable, m)
						places = n
						break
					}
					if n == 0 {
						p.kept["a"] = m
					}
				}
				if room, _ := p.e.memory.Limits(); places == 0 || places > room {
					p.problem("%d messages were accepted, and there is room for %d nonces", places, room)
				}
			}), resend{as: "a", want: nonceUsed}},
		}},
	},
	{
		name:   "a quota",
		change: func(_ *signedEnv, s *service) { s.sign.NonceQuota, s.sign.MaxNonces = 3, 5 },
		attacks: []attack{
			{
				name: "used up",
				why:  "each owner has a quota of nonces: one partner cannot fill the memory of all",
				steps: []attackStep{
					sendSigned{as: "a", request: good, want: accepted}, resend{as: "a", want: nonceUsed}, resend{as: "a", want: nonceUsed}, resend{as: "a", want: nonceUsed},
					sendSigned{request: good, want: accepted}, sendSigned{request: good, want: accepted}, sendSigned{request: good, want: limited},
					sendSigned{request: good.then(signature(zeros)), want: badMAC}, // whose quota is whose is not for everybody
					sendSigned{request: good.with(by(bob)), want: accepted},
					clockAt(window * time.Second), sendSigned{request: good.with(secondsAhead(window)), want: limited},
					clockAt(5 * time.Minute), sendSigned{request: good.with(secondsAhead(300)), want: accepted},
				},
			},
			{
				name: "of all",
				why:  "the guards' records may stand in the same store: nonces of many owners leave room for them",
				steps: []attackStep{
					clockAt(time.Hour),
					sendSigned{request: good.with(secondsAhead(3600)), want: accepted}, sendSigned{request: good.with(secondsAhead(3600)), want: accepted}, sendSigned{request: good.with(secondsAhead(3600)), want: accepted},
					sendSigned{request: good.with(by(bob), secondsAhead(3600)), want: accepted}, sendSigned{request: good.with(by(bob), secondsAhead(3600)), want: accepted},
					sendSigned{request: good.with(by(bob), secondsAhead(3600)), want: unavailable},
					clockAt(time.Hour + 5*time.Minute), sendSigned{request: good.with(by(bob), secondsAhead(3900)), want: accepted},
				},
			},
			{
				name: "what a store that is down has not remembered",
				why:  "a nonce that the store has not remembered does not count towards the quota",
				steps: []attackStep{
					clockAt(2 * time.Hour), fails(isDown),
					sendSigned{request: good.with(secondsAhead(7200)), want: unavailable}, sendSigned{request: good.with(secondsAhead(7200)), want: unavailable},
					sendSigned{request: good.with(secondsAhead(7200)), want: unavailable}, sendSigned{request: good.with(secondsAhead(7200)), want: unavailable},
					fails(nil), sendSigned{request: good.with(secondsAhead(7200)), want: accepted},
				},
			},
		},
	},
	{
		name:    "two servers",
		servers: 2,
		attacks: []attack{{
			name:  "a hundred at once",
			why:   "a nonce is looked up and marked in one atomic step: of a hundred identical messages one is let in",
			steps: []attackStep{sendAtOnce{100, good}},
		}},
	},
	{
		name:    "two servers and the service's store",
		servers: 2,
		shared:  true,
		attacks: []attack{
			{
				name:  "a hundred at once",
				why:   "processes share nothing but the store: its one step must be atomic",
				steps: []attackStep{sendAtOnce{100, good}},
			},
			{
				name: "sent again",
				why:  "the store keeps the nonce for as long as the message is good",
				steps: []attackStep{
					sendSigned{as: "a", request: good.with(secondsAhead(window)), want: accepted},
					clockAt(2 * window * time.Second), resend{as: "a", want: nonceUsed},
				},
			},
			{
				name: "per key id",
				why:  "nonces of two keys are never the same, however the store writes them down",
				steps: []attackStep{attackFunc(func(p *attackRun) {
					tail := newNonce()
					for _, r := range []signedRequest{
						good.with(set("X-Nonce", "b."+tail)), good.with(by(dotted), set("X-Nonce", tail)),
						good.with(set("X-Nonce", "b-"+tail)), good.with(by(dashed), set("X-Nonce", tail)),
						good.with(set("X-Nonce", "b"+tail)), good.with(by(joined), set("X-Nonce", tail)),
						good.with(set("X-Nonce", "case-"+tail)), good.with(set("X-Nonce", "CASE-"+tail)),
						good.with(by(bob), set("X-Nonce", tail)), good.with(set("X-Nonce", tail)),
					} {
						p.send(r.message(), accepted)
					}
					p.send(good.with(set("X-Nonce", tail)).message(), nonceUsed)
				})},
			},
		},
	},
}
