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

// forged is an attack with a signature that is changed in form or in value.
func forged(name, why string, edit func(value string) string, w verdict) attack {
	return single(name, why, good.then(signature(edit)), w)
}

var keyGroups = []attackGroup{
	{
		name: "keys",
		attacks: []attack{
			single("the good one", "a message that is signed as v1 defines is accepted", good, accepted),
			single("without covered fields", "X-Signed-Headers may be left out if there is no Idempotency-Key", good.with(uncovered()), accepted),
			single("an empty list", "an empty X-Signed-Headers is the same as none", good.with(uncovered(), cover("")), accepted),
			single("Ed25519", "v1 with Ed25519 has a first line of its own", good.with(by(ed)), accepted),
			{
				name: "two live keys under one id",
				why:  "two live keys may share an id while a secret is changed: both are good",
				steps: []attackStep{
					sendSigned{request: good.with(by(oldTwice)), want: accepted},
					sendSigned{request: good.with(by(newTwice)), want: accepted},
					sendSigned{request: good.with(by(newTwice)).then(flip(0)), want: badMAC},
				},
			},
			{
				name: "what cannot be told apart",
				why:  "every refusal for a key or its signature is the same answer, byte for byte: else ids can be guessed",
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
			single("a key before its time, by a later timestamp", "a message cannot choose the time at which its key is good", good.with(by(future), secondsAhead(window)), refusedBy(sign.ReasonKeyNotYetValid)),
			single("another's secret", "a key signs under its own id", good.with(by(bob), set("X-Key-Id", "demo")), badMAC),
			single("another's id", "the key id is signed", good.then(set("X-Key-Id", "bob")), badMAC),
			single("another id with the same secret", "the key id is signed, also if the secret is right", good.then(set("X-Key-Id", "twin")), badMAC),
			single("the id in capitals", "key ids are compared exactly", good.with(by(&signer{id: "DEMO", secret: demo.secret})), refusedBy(sign.ReasonUnknownKey)),
			single("an id with a path", "a key id is a name that a file system never sees", good.with(by(&signer{id: "../demo", secret: demo.secret})), refusedBy(sign.ReasonUnknownKey)),
			single("an empty secret", "an unknown key is refused, not checked with an empty secret", good.with(by(&signer{id: "stranger", secret: nil})), refusedBy(sign.ReasonUnknownKey)),
			single("a secret of zeros", "an unknown key is refused, not checked with an empty secret", good.with(by(&signer{id: "stranger", secret: make([]byte, 32)})), refusedBy(sign.ReasonUnknownKey)),
			single("no id", "a message without it is refused as 401 missing", good.with(drop("X-Key-Id")), missing),
			single("an empty id", "an empty field is treated as a missing one", good.with(set("X-Key-Id", "")), missing),
			single("an id with a blank", "a key id is made of visible ASCII characters", good.with(set("X-Key-Id", "de mo")), malformed),
			single("two ids in a list", "a message names one key", good.with(set("X-Key-Id", "demo, bob")), malformed),
			single("an id that is too long", "a key id has a length limit: it goes to logs and databases", good.with(set("X-Key-Id", strings.Repeat("k", 129))), malformed),
			single("an id beyond ASCII", "a key id is ASCII: other letters can look like one another", good.with(set("X-Key-Id", "dеmo")), malformed.orFront()),
			single("an id with a control character", "a key id has no control characters, which could end a line of a log", good.with(set("X-Key-Id", "demo\x0b")), malformed.orFront()),
		},
	},
	{
		name:   "key source",
		change: func(_ *signedEnv, s *service) { s.sign.StoreTimeout = 20 * time.Millisecond },
		attacks: []attack{
			{
				name: "down",
				why:  "a key source that does not answer is 503, not a bad signature",
				steps: []attackStep{
					prepare{as: "a", request: good},
					keysFail(isDown), resend{as: "a", want: unavailable},
					keysFail(nil), resend{as: "a", want: accepted},
				},
			},
			{
				name:  "slow",
				why:   "a key source has a deadline (Config.StoreTimeout), and then it is 503",
				steps: []attackStep{keysFail(isSlow), sendSigned{request: good, want: unavailable}},
			},
		},
	},
	{
		name: "algorithms",
		attacks: []attack{
			single("a public key as a secret", "the key decides on the algorithm: a message cannot have a public key's bytes taken for an HMAC secret",
				good.with(by(&signer{id: "ed", secret: edPublic()})), wrongAlg),
			single("a public key as a secret, under the other tag", "the key decides on the algorithm, also if the message names the right one",
				good.with(by(ed)).then(forge(func(m *message) string {
					mac := hmacOf(edPublic(), []byte(m.base("v1-ed25519")))
					return "v1-ed25519=" + hex.EncodeToString(append(mac, mac...))
				})), badMAC),
			single("Ed25519 under an HMAC key's id", "the algorithm belongs to the key", good.with(by(&signer{id: "demo", private: ed.private})), wrongAlg),
			single("an Ed25519 signature of the HMAC's lines", "the first line of the signing string tells the algorithms apart", good.with(by(ed)).then(forge(func(m *message) string {
				return "v1-ed25519=" + hex.EncodeToString(ed25519.Sign(ed.private, []byte(m.base("v1"))))
			})), badMAC),
			single("Ed25519, flipped", "a body that differs by one bit is refused", good.with(by(ed)).then(flip(0)), badMAC),
			single("Ed25519, all zero", "an Ed25519 signature of zeros is refused, which some libraries accept", good.with(by(ed)).then(set("X-Signature", "v1-ed25519="+strings.Repeat("0", 128))), badMAC),
			single("v2", "an unknown version is refused", good.then(signature(func(v string) string { return "v2=" + digits(v) })), wrongAlg),
			single("V1", "the tag in front of a signature is compared exactly", good.then(signature(func(v string) string { return "V1=" + digits(v) })), wrongAlg),
			single("sha256", "the tag of another scheme is refused", good.then(signature(func(v string) string { return "sha256=" + digits(v) })), wrongAlg),
			single("sha1", "a shorter digest is refused", good.then(set("X-Signature", "sha1="+strings.Repeat("a1", 20))), wrongAlg),
			single("none", "the algorithm \"none\" does not exist", good.then(set("X-Signature", "none="+strings.Repeat("00", 32))), wrongAlg),
			single("none, and nothing", "the algorithm \"none\" does not exist", good.then(set("X-Signature", "none=")), malformed),
			single("a digest instead of a MAC", "a digest without a secret is no signature", good.then(forge(func(m *message) string {
				sum := sha256.Sum256([]byte(m.base("v1")))
				return "v1=" + hex.EncodeToString(sum[:])
			})), badMAC),
			single("the MAC of nothing", "the MAC is that of the signing string: the MAC of nothing (Sum(base) in place of Write and Sum(nil)) would be good for every message", good.then(forge(func(*message) string {
				return "v1=" + hex.EncodeToString(hmacOf(demo.secret, nil))
			})), badMAC),
			{
				name: "the signature of another message",
				why:  "a signature is good for one message and for no other",
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
			forged("all zero", "a signature of zeros, as in an empty buffer, is refused", zeros, badMAC),
			forged("the first digit flipped", "all bytes of the signature are compared", func(v string) string { return v[:3] + flipped(v[3]) + v[4:] }, badMAC),
			forged("the last digit flipped", "all bytes of the signature are compared", func(v string) string { return v[:len(v)-1] + flipped(v[len(v)-1]) }, badMAC),
			forged("a digit less", "a prefix of the signature is refused", func(v string) string { return v[:len(v)-1] }, malformed),
			forged("a byte less", "a prefix of the signature is refused", func(v string) string { return v[:len(v)-2] }, malformed),
			forged("half", "a truncated MAC is refused", func(v string) string { return v[:3+32] }, malformed),
			forged("one byte", "all bytes of the MAC are compared, not as many as were sent", func(v string) string { return v[:3+2] }, malformed),
			forged("a digit more", "what follows the signature is not ignored", func(v string) string { return v + "0" }, malformed),
			forged("a byte more", "what follows the signature is not ignored", func(v string) string { return v + "00" }, malformed),
			forged("twice", "what follows the signature is not ignored", func(v string) string { return v + digits(v) }, malformed),
			forged("upper case", "a signature has one form: lower-case hexadecimal", func(v string) string { return "v1=" + strings.ToUpper(digits(v)) }, malformed),
			forged("base64", "a signature has one form: lower-case hexadecimal", inBase64, malformed),
			forged("0x", "a signature has one form: lower-case hexadecimal", func(v string) string { return "v1=0x" + digits(v)[2:] }, malformed),
			forged("without its tag", "the tag is part of the signature", digits, malformed),
			forged("with an empty tag", "the tag is part of the signature", func(v string) string { return "=" + digits(v) }, malformed),
			forged("a tag and nothing", "an empty signature is refused", func(string) string { return "v1=" }, malformed),
			forged("a tag alone", "a signature has a value behind its tag", func(string) string { return "v1" }, malformed),
			forged("a blank behind the tag", "nothing inside a value is trimmed", func(v string) string { return "v1= " + digits(v) }, malformed),
			forged("a blank in front of the equals sign", "nothing inside a value is trimmed", func(v string) string { return "v1 =" + digits(v) }, malformed),
			forged("a blank inside", "nothing inside a value is trimmed", func(v string) string { return v[:20] + " " + v[20:] }, malformed),
			forged("quoted", "a signature has one form, without quotes", func(v string) string { return `v1="` + digits(v) + `"` }, malformed),
			forged("two in a list, the good one first", "a list is refused: readers differ about which item counts", func(v string) string { return v + ", " + zeros(v) }, malformed),
			forged("two in a list, the good one last", "a list is refused: readers differ about which item counts", func(v string) string { return zeros(v) + "," + v }, malformed),
			forged("two with a blank", "a list with blanks, as in Standard Webhooks, is refused", func(v string) string { return zeros(v) + " " + v }, malformed),
			forged("a parameter behind", "what follows the signature is not ignored", func(v string) string { return v + ";alg=none" }, malformed),
			forged("digits beyond ASCII", "digits beyond ASCII are no digits", func(v string) string { return v[:len(v)-3] + "１" }, malformed.orFront()),
			forged("a NUL behind", "a NUL is a byte like any other: nothing ends at it", func(v string) string { return v + "\x00" }, malformed.orFront()),
			forged("empty", "an empty field is treated as a missing one", func(string) string { return "" }, missing),
			single("missing", "a message without it is refused as 401 missing", good.then(drop("X-Signature")), missing),
			single("nothing at all", "an unsigned request is refused as 401 missing", good.then(drop("X-Signature", "X-Key-Id", "X-Timestamp", "X-Nonce", "X-Signed-Headers")), missing),
			single("in an Authorization field", "a signature counts in X-Signature only", good.then(rename("X-Signature", "Authorization")), missing),
			single("in the query", "a parameter is no header field", good.with(target("/transfers?X-Key-Id=demo&X-Signature=v1")).then(drop("X-Signature")), missing),
			single("in a cookie", "a cookie is no header field", good.then(func(m *message) {
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
