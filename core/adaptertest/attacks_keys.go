package adaptertest

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
)

func zeros(string) string { return "v1=" + strings.Repeat("0", 64) }

func digits(value string) string {
	_, d, _ := strings.Cut(value, "=")
	return d
}

// forged is a row for a signature that is changed in form or in value.
func forged(name, why string, edit func(value string) string, w verdict) attack {
	return one(name, why, good.then(signature(edit)), w)
}

var keyGroups = []attackGroup{
	{
		name: "keys",
		attacks: []attack{
			one("the good one", "what is signed as defined is accepted", good, accepted),
			one("without covered fields", "X-Signed-Headers may be left out if there is no Idempotency-Key", good.with(uncovered()), accepted),
			one("an empty list", "an empty X-Signed-Headers is none", good.with(uncovered(), cover("")), accepted),
			one("Ed25519", "the asymmetric sibling, with its own first line", good.with(by(ed)), accepted),
			{
				name: "two live keys under one id",
				why:  "while a secret is changed, both are good",
				steps: []attackStep{
					sendSigned{request: good.with(by(oldTwice)), want: accepted},
					sendSigned{request: good.with(by(newTwice)), want: accepted},
					sendSigned{request: good.with(by(newTwice)).then(flip(0)), want: badMAC},
				},
			},
			{
				name: "what cannot be told apart",
				why:  "unknown key and bad signature look the same outside, byte for byte, or ids can be guessed",
				steps: []attackStep{sameAnswers{
					{request: good.then(signature(zeros)), want: badMAC},
					{request: good.with(by(stranger)), want: refusedBy(sign.ReasonUnknownKey)},
					{request: good.with(by(revoked)), want: refusedBy(sign.ReasonRevokedKey)},
					{request: good.with(by(future)), want: refusedBy(sign.ReasonKeyNotYetValid)},
					{request: good.with(by(past)), want: refusedBy(sign.ReasonKeyExpired)},
					{request: good.with(by(ed)).then(forge(func(m *message) string { return demo.sign(m) })), want: wrongAlg},
					{request: good.with(cover("content-type")), want: notCovered},
				}},
			},
			{
				name: "what an observer keeps",
				why:  "a framework such as Fiber uses the memory of a request again: an event in a queue or a log must go on to name its own key",
				steps: slices.Repeat([]attackStep{
					sendSigned{request: good, want: accepted},
					sendSigned{request: good.with(by(twin)), want: accepted},
					sendSigned{request: good.with(by(oldTwice)).then(flip(0)), want: badMAC},
				}, 8),
			},
			{
				name: "a key's validity",
				why:  "a key is good from its first moment until before its last, by the verifier's clock",
				steps: []attackStep{
					clockAt(-time.Nanosecond), sendSigned{request: good.with(by(past)), want: accepted},
					clockAt(0), sendSigned{request: good.with(by(past)), want: refusedBy(sign.ReasonKeyExpired)},
					clockAt(minute - time.Nanosecond), sendSigned{request: good.with(by(future)), want: refusedBy(sign.ReasonKeyNotYetValid)},
					clockAt(minute), sendSigned{request: good.with(by(future)), want: accepted},
				},
			},
			one("a key before its time, by a later timestamp", "a message cannot choose the time at which its key is good", good.with(by(future), secondsAhead(window)), refusedBy(sign.ReasonKeyNotYetValid)),
			one("another's secret", "a key signs under its own id", good.with(by(bob), set("X-Key-Id", "demo")), badMAC),
			one("another's id", "the key id is signed", good.then(set("X-Key-Id", "bob")), badMAC),
			one("another id with the same secret", "the key id is signed, also if the secret is right", good.then(set("X-Key-Id", "twin")), badMAC),
			one("the id in capitals", "ids are exact", good.with(by(&signer{id: "DEMO", secret: demo.secret})), refusedBy(sign.ReasonUnknownKey)),
			one("an id with a path", "an id is a name, not a file", good.with(by(&signer{id: "../demo", secret: demo.secret})), refusedBy(sign.ReasonUnknownKey)),
			one("an empty secret", "empty secret accepted: what is not known must not be checked with nothing", good.with(by(&signer{id: "stranger", secret: nil})), refusedBy(sign.ReasonUnknownKey)),
			one("a secret of zeros", "as above", good.with(by(&signer{id: "stranger", secret: make([]byte, 32)})), refusedBy(sign.ReasonUnknownKey)),
			one("no id", "401 missing", good.with(drop("X-Key-Id")), missing),
			one("an empty id", "what is empty is not there", good.with(set("X-Key-Id", "")), missing),
			one("an id with a blank", "visible ASCII characters", good.with(set("X-Key-Id", "de mo")), malformed),
			one("two ids in a list", "one message, one key", good.with(set("X-Key-Id", "demo, bob")), malformed),
			one("an id that is too long", "ids go to logs and databases", good.with(set("X-Key-Id", strings.Repeat("k", 129))), malformed),
			one("an id beyond ASCII", "a letter that looks like another one", good.with(set("X-Key-Id", "dеmo")), malformed.orFront()),
			one("an id with a control character", "it would end a line of a log", good.with(set("X-Key-Id", "demo\x0b")), malformed.orFront()),
		},
	},
	{
		name:   "key source",
		change: func(_ *signedEnv, s *service) { s.sign.StoreTimeout = 20 * time.Millisecond },
		attacks: []attack{
			{
				name: "down",
				why:  "a database of keys that does not answer is no reason to say that a signature is bad",
				steps: []attackStep{
					prepare{as: "a", request: good},
					keysFail(isDown), resend{as: "a", want: unavailable},
					keysFail(nil), resend{as: "a", want: accepted},
				},
			},
			{
				name:  "slow",
				why:   "it has a deadline, as the nonce store has",
				steps: []attackStep{keysFail(isSlow), sendSigned{request: good, want: unavailable}},
			},
		},
	},
	{
		name: "algorithms",
		attacks: []attack{
			one("a public key as a secret", "the algorithm picked by the message: HMAC with the bytes of a public key, which everybody has",
				good.with(by(&signer{id: "ed", secret: edPublic()})), wrongAlg),
			one("a public key as a secret, under the other tag", "the same, with the tag that the key has",
				good.with(by(ed)).then(forge(func(m *message) string {
					mac := hmacOf(edPublic(), []byte(m.base("v1-ed25519")))
					return "v1-ed25519=" + hex.EncodeToString(append(mac, mac...))
				})), badMAC),
			one("Ed25519 under an HMAC key's id", "the algorithm belongs to the key", good.with(by(&signer{id: "demo", private: ed.private})), wrongAlg),
			one("an Ed25519 signature of the HMAC's lines", "the first line tells the two apart", good.with(by(ed)).then(forge(func(m *message) string {
				return "v1-ed25519=" + hex.EncodeToString(ed25519.Sign(ed.private, []byte(m.base("v1"))))
			})), badMAC),
			one("Ed25519, flipped", "one bit is enough", good.with(by(ed)).then(flip(0)), badMAC),
			one("Ed25519, all zero", "the zero point with a zero scalar is a signature for some libraries", good.with(by(ed)).then(set("X-Signature", "v1-ed25519="+strings.Repeat("0", 128))), badMAC),
			one("v2", "a version that is not known is not the one that is", good.then(signature(func(v string) string { return "v2=" + digits(v) })), wrongAlg),
			one("V1", "tags are exact", good.then(signature(func(v string) string { return "V1=" + digits(v) })), wrongAlg),
			one("sha256", "the tag of another house", good.then(signature(func(v string) string { return "sha256=" + digits(v) })), wrongAlg),
			one("sha1", "a shorter digest is easier to hit", good.then(set("X-Signature", "sha1="+strings.Repeat("a1", 20))), wrongAlg),
			one("none", "JWT's famous one", good.then(set("X-Signature", "none="+strings.Repeat("00", 32))), wrongAlg),
			one("none, and nothing", "JWT's famous one", good.then(set("X-Signature", "none=")), malformed),
			one("a digest instead of a MAC", "the body's SHA-256 with no secret in it", good.then(forge(func(m *message) string {
				sum := sha256.Sum256([]byte(m.base("v1")))
				return "v1=" + hex.EncodeToString(sum[:])
			})), badMAC),
			one("the MAC of nothing", "Sum(base) instead of Write then Sum(nil): one observed signature forges all", good.then(forge(func(*message) string {
				return "v1=" + hex.EncodeToString(hmacOf(demo.secret, nil))
			})), badMAC),
			{
				name: "the signature of another message",
				why:  "as above, by observation: what is good for one message is good for no other",
				steps: []attackStep{
					prepare{as: "other", request: good},
					attackFunc(func(p *attackRun) {
						p.send(good.then(set("X-Signature", p.kept["other"].value("X-Signature"))).message(), badMAC)
					}),
				},
			},
		},
	},
	{
		name: "signatures",
		attacks: []attack{
			forged("all zero", "what a buffer holds that nobody has filled", zeros, badMAC),
			forged("the first digit flipped", "all of it is compared", func(v string) string { return v[:3] + flipped(v[3]) + v[4:] }, badMAC),
			forged("the last digit flipped", "all of it is compared", func(v string) string { return v[:len(v)-1] + flipped(v[len(v)-1]) }, badMAC),
			forged("a digit less", "a prefix is not the signature", func(v string) string { return v[:len(v)-1] }, malformed),
			forged("a byte less", "a prefix is not the signature", func(v string) string { return v[:len(v)-2] }, malformed),
			forged("half", "truncated MACs are another algorithm", func(v string) string { return v[:3+32] }, malformed),
			forged("one byte", "comparing as much as there is takes one of 256", func(v string) string { return v[:3+2] }, malformed),
			forged("a digit more", "what follows is not ignored", func(v string) string { return v + "0" }, malformed),
			forged("a byte more", "what follows is not ignored", func(v string) string { return v + "00" }, malformed),
			forged("twice", "what follows is not ignored", func(v string) string { return v + digits(v) }, malformed),
			forged("upper case", "one signature has one form", func(v string) string { return "v1=" + strings.ToUpper(digits(v)) }, malformed),
			forged("base64", "one signature has one form", inBase64, malformed),
			forged("0x", "as above", func(v string) string { return "v1=0x" + digits(v)[2:] }, malformed),
			forged("without its tag", "the tag is a part of it", digits, malformed),
			forged("with an empty tag", "the tag is a part of it", func(v string) string { return "=" + digits(v) }, malformed),
			forged("a tag and nothing", "an empty signature is none", func(string) string { return "v1=" }, malformed),
			forged("a tag alone", "as above", func(string) string { return "v1" }, malformed),
			forged("a blank behind the tag", "nothing is trimmed inside", func(v string) string { return "v1= " + digits(v) }, malformed),
			forged("a blank in front of the equals sign", "nothing is trimmed inside", func(v string) string { return "v1 =" + digits(v) }, malformed),
			forged("a blank inside", "as above", func(v string) string { return v[:20] + " " + v[20:] }, malformed),
			forged("quoted", "as above", func(v string) string { return `v1="` + digits(v) + `"` }, malformed),
			forged("two in a list, the good one first", "the first or the last is somebody's choice", func(v string) string { return v + ", " + zeros(v) }, malformed),
			forged("two in a list, the good one last", "as above", func(v string) string { return zeros(v) + "," + v }, malformed),
			forged("two with a blank", "as in Standard Webhooks, which is another scheme", func(v string) string { return zeros(v) + " " + v }, malformed),
			forged("a parameter behind", "as above", func(v string) string { return v + ";alg=none" }, malformed),
			forged("digits beyond ASCII", "they are no digits", func(v string) string { return v[:len(v)-3] + "１" }, malformed.orFront()),
			forged("a NUL behind", "C ends a string there", func(v string) string { return v + "\x00" }, malformed.orFront()),
			forged("empty", "what is empty is not there", func(string) string { return "" }, missing),
			one("missing", "401 missing", good.then(drop("X-Signature")), missing),
			one("nothing at all", "an unsigned request is told so", good.then(drop("X-Signature", "X-Key-Id", "X-Timestamp", "X-Nonce", "X-Signed-Headers")), missing),
			one("in an Authorization field", "what is not where it belongs is not there", good.then(rename("X-Signature", "Authorization")), missing),
			one("in the query", "parameters are not header fields", good.with(target("/transfers?X-Key-Id=demo&X-Signature=v1")).then(drop("X-Signature")), missing),
			one("in a cookie", "nor are cookies", good.then(func(m *message) {
				m.lines = append(m.lines, line{"Cookie", " X-Signature=" + m.value("X-Signature")})
				m.drop("X-Signature")
			}), missing),
		},
	},
}

func keysFail(f func(context.Context) error) attackFunc {
	return func(p *attackRun) { p.e.keyring.failing(f) }
}

// flipped is another hexadecimal digit.
func flipped(digit byte) string {
	if digit == '0' {
		return "1"
	}
	return "0"
}

func inBase64(v string) string {
	mac, _ := hex.DecodeString(digits(v)) // they were encoded here
	return "v1=" + base64.StdEncoding.EncodeToString(mac)
}
