package adaptertest

import (
	"crypto/fips140"
	"crypto/md5"
	"crypto/sha512"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/rfc9421"
)

var (
	good9421       = good.with(as9421)
	digestMismatch = refusedBy(sign.ReasonDigestMismatch)
)

func withRFC9421(o rfc9421.Options) func(*signedEnv, *service) {
	return func(_ *signedEnv, s *service) {
		scheme, err := rfc9421.New(o)
		if err != nil {
			panic(err) // the suite's own options
		}
		s.sign.Scheme = scheme
	}
}

// input replaces a part of Signature-Input.
func input(old, by string) change {
	return replace("Signature-Input", func(v string) string { return strings.Replace(v, old, by, 1) })
}

// inputRow is a row for a Signature-Input in which something is replaced; the message is signed with it.
func inputRow(name, why, old, by string, w verdict) attack {
	return one(name, why, good9421.with(input(old, by)), w)
}

// covered replaces the list of components.
func covered(list string) change {
	return replace("Signature-Input", func(v string) string { return "sig1=(" + list + v[strings.Index(v, ")"):] })
}

func coveredRow(name, why, list string, w verdict) attack {
	return one(name, why, good9421.with(covered(list)), w)
}

const usual = `"@method" "@authority" "@path" "@query" "content-digest" "content-type" "idempotency-key"`

// digestRow is a row for a Content-Digest, which is covered and signed as it stands.
func digestRow(name, why, digest string, w verdict) attack {
	return one(name, why, good9421.with(set("Content-Digest", digest)), w)
}

func base64Of[T ~[]byte](b T) string { return base64.StdEncoding.EncodeToString(b) }

func sha512Digest(body string) string {
	sum := sha512.Sum512([]byte(body))
	return "sha-512=:" + base64Of(sum[:]) + ":"
}

// md5Digest is also for tests under FIPS 140, where the rows must refuse it all the same.
func md5Digest(body string) (digest string) {
	fips140.WithoutEnforcement(func() {
		sum := md5.Sum([]byte(body))
		digest = "md5=:" + base64Of(sum[:]) + ":"
	})
	return digest
}

var rfc9421Groups = []attackGroup{
	{
		name:   "RFC 9421",
		change: withRFC9421(rfc9421.Options{}),
		attacks: []attack{
			one("the good one", "the usual components, an HMAC key, and a digest of the body", good9421, accepted),
			one("Ed25519", "the algorithm is the key's", good9421.with(by9421(ed), input("hmac-sha256", "ed25519")), accepted),
			one("v1", "one verifier, one scheme: a message cannot choose", good, missing),
			{
				name: "v1 beside it", why: "as above: fields of another scheme count for nothing", steps: []attackStep{
					attackFunc(func(p *attackRun) {
						other := good.message()
						p.send(good9421.then(last("X-Signature", other.value("X-Signature")), last("X-Key-Id", "bob")).message(), accepted)
						p.send(good9421.then(drop("Signature"), last("X-Signature", other.value("X-Signature")), last("X-Key-Id", "demo")).message(), missing)
					}),
				},
			},
			one("in chunks", "how a body is framed is not signed", good9421.then(inChunks()), accepted),
			one("the method changed", "@method must be covered", good9421.then(method("PUT")), badMAC),
			one("the host changed", "@authority must be covered", good9421.then(host("evil.example.com")), badMAC),
			one("the path changed", "@path must be covered, raw", good9421.then(target("/transfers/a/b?x=2&x=1")), badMAC),
			one("the query changed", "@query must be covered, in its order", good9421.then(target("/transfers/a%2Fb?x=1&x=2")), badMAC),
			one("the host in capitals", "RFC 9421, section 2.2.3: @authority is in lower case", good9421.then(host("API.Example.COM")), accepted),
			one("the default port", "RFC 9421, section 2.2.3: @authority leaves it out", good9421.then(host("api.example.com:80")), accepted),
			one("another port", "as above, but only that one", good9421.then(host("api.example.com:8080")), badMAC),
			one("X-Forwarded-Host", "what is not signed changes nothing", good9421.then(host("evil.example.com"), last("X-Forwarded-Host", "api.example.com")), badMAC),
			one("X-HTTP-Method-Override", "as above", good9421.then(method("PUT"), last("X-HTTP-Method-Override", "POST")), badMAC),
			one("a covered field removed", "what is said to be covered must be there", good9421.then(drop("Content-Type")), notCovered),
			one("a covered field changed", "as it was signed", good9421.then(set("Content-Type", "text/plain")), badMAC),
			one("a covered field twice", "one line each, so that all look at the same", good9421.then(last("Content-Type", "text/plain")), duplicate),
			one("a covered field twice, the bad one first", "as above", good9421.then(first("Content-Type", "text/plain")), duplicate),
			one("the key changed", "Idempotency-Key is signed", good9421.then(set("Idempotency-Key", `"k-2"`)), badMAC),
			one("the key twice", "two keys are not one", good9421.then(last("Idempotency-Key", `"k-2"`)), duplicate),
			one("space around", "RFC 9421, section 2.1: it is not of the value", good9421.then(raw("Content-Type", "  application/json ")), accepted),
			one("tabs around", "as in v1", good9421.then(raw("Content-Type", "\tapplication/json \t")), verdict{either: true}),
			coveredRow("Idempotency-Key not covered", "Idempotency-Key must be covered when present", strings.TrimSuffix(usual, ` "idempotency-key"`), notCovered),
			coveredRow("Content-Type not covered", "Content-Type must be covered when present: it says how the body is read", strings.Replace(usual, ` "content-type"`, "", 1), notCovered),
			one("a Content-Type that was added", "as above", good9421.with(drop("Content-Type"), input(` "content-type"`, "")).then(last("Content-Type", "text/xml")), notCovered),
			coveredRow("no @method", "the profile's components must be covered: a signature of half a request is not one of the request", strings.Replace(usual, `"@method" `, "", 1), notCovered),
			coveredRow("no @authority", "as above", strings.Replace(usual, `"@authority" `, "", 1), notCovered),
			coveredRow("no @path", "as above", strings.Replace(usual, `"@path" `, "", 1), notCovered),
			coveredRow("no @query", "as above", strings.Replace(usual, `"@query" `, "", 1), notCovered),
			coveredRow("@request-target", "it stands for path and query", `"@method" "@authority" "@request-target" "content-digest" "content-type" "idempotency-key"`, accepted),
			coveredRow("@request-target without the host", "but not for the host", `"@method" "@request-target" "content-digest" "content-type" "idempotency-key"`, notCovered),
			coveredRow("@target-uri", "it stands for host, path and query", `"@method" "@target-uri" "content-digest" "content-type" "idempotency-key"`, accepted),
			coveredRow("in another order", "the list says the order", `"idempotency-key" "content-type" "content-digest" "@query" "@path" "@authority" "@method"`, accepted),
			{
				name: "what cannot be told apart",
				why:  "outside a bad digest, an unknown key and a bad signature are one",
				steps: []attackStep{sameAnswers{
					{request: good9421.then(set("Signature", "sig1=:"+base64Of(make([]byte, 32))+":")), want: badMAC},
					{request: good9421.then(flip(0)), want: digestMismatch},
					{request: good9421.with(by9421(stranger)), want: refusedBy(sign.ReasonUnknownKey)},
					{request: good9421.with(by9421(revoked)), want: refusedBy(sign.ReasonRevokedKey)},
					{request: good9421.with(by9421(future)), want: refusedBy(sign.ReasonKeyNotYetValid)},
					{request: good9421.with(by9421(past)), want: refusedBy(sign.ReasonKeyExpired)},
					{request: good9421.with(input(`alg="hmac-sha256"`, `alg="none"`)), want: wrongAlg},
				}},
			},
			{
				name: "sent again", why: "the nonce parameter is kept until created has left the window", steps: []attackStep{
					sendSigned{as: "a", request: good9421.with(input("1700000000", "1700000060")), want: accepted},
					resend{as: "a", want: nonceUsed},
					clockAt(2 * window * time.Second), resend{as: "a", want: nonceUsed},
					clockAt((2*window + 1) * time.Second), resend{as: "a", want: expired},
				},
			},
			{
				name: "a victim's nonce", why: "a nonce is burnt by a good signature only, and by one whose digest is the body's", steps: []attackStep{
					prepare{as: "a", request: good9421},
					resend{as: "a", want: badMAC, changes: []change{target("/other")}},
					resend{as: "a", want: digestMismatch, changes: []change{flip(0)}},
					resend{as: "a", want: accepted},
				},
			},
		},
	},
	{
		name:   "RFC 9421: Signature-Input",
		change: withRFC9421(rfc9421.Options{}),
		attacks: slices.Concat([]attack{
			one("missing", "401 missing", good9421.then(drop("Signature-Input")), missing),
			one("empty", "what is empty is not there", good9421.then(set("Signature-Input", "")), missing),
			one("twice", "one line", good9421.then(twice("Signature-Input")), duplicate),
			one("twice, the bad one first", "one line", good9421.then(first("Signature-Input", `sig1=("@method");created=1;keyid="bob";nonce="n-0123456789abcdef"`)), duplicate),
			inputRow("without a label", "it is a dictionary (RFC 9421, section 4.1)", "sig1=", "", malformed),
			inputRow("a label in capitals", "keys are in lower case (RFC 8941, section 3.1.2)", "sig1=", "SIG1=", malformed),
			inputRow("an empty label", "as above", "sig1=", "=", malformed),
			inputRow("a label without a list", "as above", "sig1=", "sig1=1, sig2=", malformed),
			inputRow("two signatures", "which of two counts is somebody's choice", "sig1=", `sig0=("@method");created=1700000000;keyid="demo";nonce="n-0123456789abcdef", sig1=`, malformed),
			one("the label twice", "the first or the last is somebody's choice", good9421.then(replace("Signature-Input", func(v string) string { return v + ", " + v })), malformed),
			one("the signature of another label", "Signature must be that of Signature-Input", good9421.then(replace("Signature", func(v string) string { return "sig2" + v[4:] })), malformed),
			inputRow("no components", "a signature of nothing", "("+usual+")", "()", notCovered),
			inputRow("no list", "an inner list", "("+usual+")", `"@method"`, malformed),
			inputRow("an open list", "as above", ")", "", malformed),
			inputRow("no parameters", "created, keyid and nonce must be there", `;created=1700000000;keyid="demo";alg="hmac-sha256";nonce=`, ";x=", malformed),
			inputRow("tokens", "components are strings", `"@method"`, `@method`, malformed),
			inputRow("numbers", "components are strings", `"@method"`, `1`, malformed),
			inputRow("an open string", "a quote that nobody closes", `"idempotency-key"`, `"idempotency-key`, malformed),
			inputRow("no blank between components", "a list has blanks in it", `"@method" `, `"@method"`, malformed),
			inputRow("commas between components", "a list has no commas in it", `"@method" `, `"@method",`, malformed),
			inputRow("capitals", "RFC 9421, section 2.1: names are in lower case", `"content-type"`, `"Content-Type"`, malformed),
			inputRow("a component twice", "RFC 9421, section 2: each once", `"@method"`, `"@method" "@method"`, malformed),
			inputRow("an unknown derived component", "what is not understood is not verified", `"@method"`, `"@method" "@client-cert"`, malformed),
			inputRow("@status", "it is a response's", `"@method"`, `"@method" "@status"`, malformed),
			inputRow("@query-param", "one parameter is not the query", `"@query"`, `"@query-param";name="x"`, malformed),
			inputRow("@signature-params", "RFC 9421, section 2.5: it must not be in the list", `"@method"`, `"@method" "@signature-params"`, malformed),
			inputRow("signature", "a signature cannot sign itself", `"@method"`, `"@method" "signature"`, malformed),
			inputRow("host", "@authority is it", `"@method"`, `"@method" "host"`, malformed),
			inputRow("an empty name", "names have characters", `"@method"`, `"@method" ""`, malformed),
			inputRow("a name with a line feed in escape", "there are no such escapes", `"content-type"`, `"content\ntype"`, malformed),
			inputRow("parameter sf", "another way to write the value down", `"content-type"`, `"content-type";sf`, malformed),
			inputRow("parameter bs", "as above", `"content-type"`, `"content-type";bs`, malformed),
			inputRow("parameter key", "a part is not the whole", `"content-type"`, `"content-type";key="a"`, malformed),
			inputRow("parameter tr", "trailers are not there yet", `"content-type"`, `"content-type";tr`, malformed),
			inputRow("parameter req", "it is for responses", `"@method"`, `"@method";req`, malformed),
			coveredRow("a field that is not there", "what is said to be covered must be there", usual+` "x-absent"`, notCovered),
			coveredRow("a thousand components", "a long list is a short denial of service", usual+` "`+strings.Join(headerNames(1000), `" "`)+`"`, malformed.orFront()),

			inputRow("no created", "a signature without a time is good for ever", ";created=1700000000", "", missing),
			inputRow("created as a string", "it is an integer", "=1700000000", `="1700000000"`, malformed),
			inputRow("created as a decimal", "as above", "=1700000000", "=1700000000.0", malformed),
			inputRow("created without a value", "as above", "=1700000000", "", malformed),
			inputRow("created with a sign", "digits only", "=1700000000", "=-1700000000", malformed),
			inputRow("created with a plus", "digits only", "=1700000000", "=+1700000000", malformed),
			inputRow("created with a leading zero", "RFC 9421, section 2.5: what is signed is the serialised form, which has none", "=1700000000", "=01700000000", badMAC),
			inputRow("created too long", "RFC 8941, section 3.3.1: 15 digits", "=1700000000", "=1700000000000000", malformed),
			inputRow("created overflowing", "2^64 + 1700000000", "=1700000000", "=18446744075409551616", malformed),
			inputRow("created twice", "RFC 8941: the last counts; some take the first", ";created=1700000000", ";created=1;created=1700000000", malformed),
			inputRow("created in milliseconds", "they are seconds of the year 55841", "=1700000000", "=1700000000000", notYetValid),
			inputRow("created at -W", "the window is inclusive", "=1700000000", "=1699999940", accepted),
			inputRow("created at -W-1", "older than W is expired", "=1700000000", "=1699999939", expired),
			inputRow("created at +W", "the window is symmetric", "=1700000000", "=1700000060", accepted),
			inputRow("created at +W+1", "a window checked on one side only", "=1700000000", "=1700000061", notYetValid),
			inputRow("expires", "the client's own limit", ";keyid", ";expires=1700000000;keyid", accepted),
			inputRow("expires, a second too late", "the client's own limit", "1700000000;keyid", "1699999990;expires=1699999999;keyid", expired),
			inputRow("expires in a year", "it can only shorten the window", "1700000000;keyid", "1699999939;expires=1731536000;keyid", expired),
			inputRow("expires before created", "there is no such time", ";keyid", ";expires=1699999999;keyid", malformed),
			inputRow("expires as a string", "it is an integer", ";keyid", `;expires="1700000009";keyid`, malformed),

			inputRow("no keyid", "a message names its key", `;keyid="demo"`, "", missing),
			inputRow("keyid as a number", "a panic on keyid=123", `keyid="demo"`, "keyid=123", malformed),
			inputRow("keyid as a token", "it is a string", `keyid="demo"`, "keyid=demo", malformed),
			inputRow("keyid as bytes", "as above", `keyid="demo"`, "keyid=:ZGVtbw==:", malformed),
			inputRow("keyid as a boolean", "as above", `keyid="demo"`, "keyid", malformed),
			inputRow("keyid twice", "the first or the last is somebody's choice", `keyid="demo"`, `keyid="bob";keyid="demo"`, malformed),
			inputRow("keyid with a blank", "visible ASCII characters", `keyid="demo"`, `keyid="de mo"`, malformed),
			inputRow("keyid empty", "what is empty is not there", `keyid="demo"`, `keyid=""`, missing),
			inputRow("alg left out", "the key says it", `;alg="hmac-sha256"`, "", accepted),
			inputRow("alg none", "the algorithm picked by the message", `"hmac-sha256"`, `"none"`, wrongAlg),
			inputRow("alg of another kind", "as above", `"hmac-sha256"`, `"rsa-pss-sha512"`, wrongAlg),
			inputRow("alg in capitals", "names are exact", `"hmac-sha256"`, `"HMAC-SHA256"`, wrongAlg),
			inputRow("alg empty", "there, it names the algorithm: no algorithm has no name", `"hmac-sha256"`, `""`, malformed),
			inputRow("alg as a token", "it is a string", `"hmac-sha256"`, "hmac-sha256", malformed),
			one("a public key as a secret", "HMAC with the bytes of a public key, which everybody has", good9421.with(by9421(&signer{id: "ed", secret: edPublic()})), wrongAlg),
			one("a public key as a secret, without alg", "the same, without saying so", good9421.with(by9421(&signer{id: "ed", secret: edPublic()}), input(`;alg="hmac-sha256"`, "")), badMAC),
			one("no nonce", "missing nonce accepted", good9421.with(replace("Signature-Input", func(v string) string { return v[:strings.Index(v, ";nonce=")] })), missing),
			one("a short nonce", "as in v1", good9421.with(nonce9421("0123456789abcde")), malformed),
			one("a nonce with a comma", "as in v1", good9421.with(nonce9421("0123456789,abcdef")), malformed),
			one("a nonce with an escape", "as in v1", good9421.with(nonce9421(`0123456789\"abcdef`)), malformed),
			one("an empty nonce", "what is empty is not there", good9421.with(nonce9421("")), missing),
			inputRow("an empty tag", "RFC 9421, section 2.3: an application without a name is not the same as none", ";keyid", `;tag="";keyid`, malformed),
			inputRow("a tag", "RFC 9421, section 2.3: it says for which application the signature is: a verifier that is for none takes none", ";keyid", `;tag="shop";keyid`, refusedBy(sign.CodeInvalid)),
			inputRow("an unknown parameter", "what is not understood may change everything", ";keyid", ";scope=1;keyid", malformed),
			one("something behind", "the whole field counts", good9421.then(replace("Signature-Input", func(v string) string { return v + " x" })), malformed),
			one("a comma behind", "as above", good9421.then(replace("Signature-Input", func(v string) string { return v + "," })), malformed),
			one("a semicolon behind", "as above", good9421.then(replace("Signature-Input", func(v string) string { return v + ";" })), malformed),
			one("more blanks", "RFC 9421, section 2.5: what is signed is the serialised form", good9421.then(input(`"@method" "@authority"`, `  "@method"   "@authority"`)), accepted),
			one("beyond ASCII", "structured fields are ASCII", good9421.then(input("demo", "dеmo")), malformed.orFront()),
			one("a control character", "as above", good9421.then(input("demo", "de\x01mo")), malformed.orFront()),
			one("only quotes", "no panic on any input", good9421.then(set("Signature-Input", `"""`)), malformed),
			one("only parentheses", "no panic on any input", good9421.then(set("Signature-Input", strings.Repeat("(", 2000))), malformed),
		}),
	},
	{
		name:   "RFC 9421: an unsigned Content-Type",
		change: withRFC9421(rfc9421.Options{UnsignedContentType: true}),
		attacks: []attack{
			coveredRow("is taken", "signers that do not cover it are let in where the configuration says so", strings.Replace(usual, ` "content-type"`, "", 1), accepted),
			one("covered and changed", "who covers it is protected all the same", good9421.then(set("Content-Type", "text/xml")), badMAC),
		},
	},
	{
		name:   "RFC 9421: Signature",
		change: withRFC9421(rfc9421.Options{}),
		attacks: []attack{
			one("missing", "401 missing", good9421.then(drop("Signature")), missing),
			one("empty", "what is empty is not there", good9421.then(set("Signature", "")), missing),
			one("twice", "one line", good9421.then(twice("Signature")), duplicate),
			one("twice, the bad one first", "one line", good9421.then(first("Signature", "sig1=:"+base64Of(make([]byte, 32))+":")), duplicate),
			bytes9421("all zero", "what a buffer holds that nobody has filled", func(b []byte) string { return base64Of(make([]byte, len(b))) }, badMAC),
			bytes9421("the last bit flipped", "all of it is compared", func(b []byte) string { b[len(b)-1] ^= 1; return base64Of(b) }, badMAC),
			bytes9421("a byte less", "a prefix is not the signature", func(b []byte) string { return base64Of(b[:len(b)-1]) }, badMAC),
			bytes9421("half", "truncated MACs are another algorithm", func(b []byte) string { return base64Of(b[:16]) }, badMAC),
			bytes9421("one byte", "comparing as much as there is takes one of 256", func(b []byte) string { return base64Of(b[:1]) }, badMAC),
			bytes9421("a byte more", "what follows is not ignored", func(b []byte) string { return base64Of(append(b, 0)) }, badMAC),
			bytes9421("no bytes", "an empty signature is none", func([]byte) string { return "" }, malformed),
			bytes9421("without padding", "one signature has one form", func(b []byte) string { return strings.TrimRight(base64Of(b), "=") }, malformed),
			bytes9421("for URLs", "as above", func([]byte) string { return base64.URLEncoding.EncodeToString([]byte(strings.Repeat("\xff", 32))) }, malformed),
			bytes9421("in hexadecimal", "64 digits are base64 of something else", func(b []byte) string { return strings.Repeat("a1", len(b)) }, badMAC),
			bytes9421("a blank inside", "as above", func(b []byte) string { s := base64Of(b); return s[:8] + " " + s[8:] }, malformed),
			bytes9421("very long", "nobody signs with that many bits", func([]byte) string { return base64Of(make([]byte, 6000)) }, malformed.orFront()),
			one("as a string", "it is a byte sequence", good9421.then(replace("Signature", func(v string) string { return strings.ReplaceAll(v, ":", `"`) })), malformed),
			one("as a token", "as above", good9421.then(replace("Signature", func(v string) string { return strings.ReplaceAll(v, ":", "") })), malformed),
			one("with a parameter", "it has none", good9421.then(replace("Signature", func(v string) string { return v + ";alg=none" })), malformed),
			one("without its label", "it is a dictionary", good9421.then(replace("Signature", func(v string) string { return v[5:] })), malformed),
			one("the label twice", "the first or the last is somebody's choice", good9421.then(replace("Signature", func(v string) string { return "sig1=:" + base64Of(make([]byte, 32)) + ":, " + v })), malformed),
			one("two labels", "which of two counts is somebody's choice", good9421.then(replace("Signature", func(v string) string { return "sig0=:" + base64Of(make([]byte, 32)) + ":, " + v })), malformed),
		},
	},
	{
		name:   "RFC 9421: Content-Digest",
		change: withRFC9421(rfc9421.Options{}),
		attacks: []attack{
			one("the body flipped", "signing without the body: the digest is compared with it", good9421.then(flip(0)), digestMismatch),
			one("the last byte flipped", "all of it", good9421.then(flip(-1)), digestMismatch),
			one("the body cut", "all of it", good9421.then(body(goodBody[:10])), digestMismatch),
			one("the body gone", "no body is not any body", good9421.then(body("")), digestMismatch),
			one("body and digest changed", "the digest is signed", good9421.then(body("x"), set("Content-Digest", sha256Digest("x"))), badMAC),
			digestRow("of another body", "also if it is signed so", sha256Digest("x"), digestMismatch),
			one("missing", "a body of which the signature says nothing is anybody's", good9421.with(drop("Content-Digest"), input(` "content-digest"`, "")), notCovered),
			one("missing, and said to be covered", "what is said to be covered must be there", good9421.then(drop("Content-Digest")), notCovered),
			one("missing, as empty", "no field is not an empty field", good9421.with(set("Content-Digest", "")).then(drop("Content-Digest")), notCovered),
			one("not covered", "a digest that nobody has signed is anybody's", good9421.with(input(` "content-digest"`, "")), notCovered),
			one("none, and no body", "there is nothing to be covered", good9421.with(body(""), drop("Content-Digest"), input(` "content-digest"`, "")), accepted),
			one("of no body", "an empty body has a digest, too", good9421.with(body("")), accepted),
			one("a body added", "where there was none", good9421.with(body(""), drop("Content-Digest"), input(` "content-digest"`, "")).then(body("x")), notCovered),
			one("a body and its digest added", "as above", good9421.with(body(""), drop("Content-Digest"), input(` "content-digest"`, "")).then(body("x"), last("Content-Digest", sha256Digest("x"))), notCovered),
			one("twice", "one line", good9421.then(twice("Content-Digest")), duplicate),
			one("twice, the bad one first", "one line", good9421.then(first("Content-Digest", sha256Digest("x"))), duplicate),
			one("twice, the bad one last", "one line", good9421.then(last("Content-Digest", sha256Digest("x"))), duplicate),
			digestRow("an algorithm twice", "the first or the last is somebody's choice", sha256Digest("x")+", "+sha256Digest(goodBody), malformed),
			digestRow("SHA-512", "RFC 9530, section 5: the other one that is active", sha512Digest(goodBody), accepted),
			digestRow("two that are good", "both are the body's", sha256Digest(goodBody)+", "+sha512Digest(goodBody), accepted),
			digestRow("a good one and a bad one", "all that prove something must be right", sha256Digest(goodBody)+", "+sha512Digest("x"), digestMismatch),
			digestRow("a bad one and a good one", "as above", sha256Digest("x")+", "+sha512Digest(goodBody), digestMismatch),
			digestRow("MD5 alone", "RFC 9530, section 5: deprecated: anybody makes another body for it", md5Digest(goodBody), notCovered),
			digestRow("SHA-1 alone", "as above", "sha=:"+base64Of(make([]byte, 20))+":", notCovered),
			digestRow("a checksum alone", "as above", "unixsum=:"+base64Of([]byte("1234"))+":", notCovered),
			digestRow("an unknown one alone", "what is not understood proves nothing", "sha-3=:"+base64Of(make([]byte, 32))+":", notCovered),
			digestRow("MD5 beside a good one", "what is weak counts for nothing", md5Digest(goodBody)+", "+sha256Digest(goodBody), accepted),
			digestRow("MD5 beside a bad one", "and makes up for nothing", md5Digest(goodBody)+", "+sha256Digest("x"), digestMismatch),
			digestRow("in capitals", "keys are in lower case", "SHA-256"+sha256Digest(goodBody)[7:], malformed),
			digestRow("as RFC 3230 has it", "another field, another form", "SHA-256="+strings.Trim(sha256Digest(goodBody)[8:], ":"), malformed),
			digestRow("as a string", "it is a byte sequence", strings.ReplaceAll(sha256Digest(goodBody), ":", `"`), malformed),
			digestRow("cut", "a part of a digest is none", "sha-256=:"+base64Of(make([]byte, 16))+":", malformed),
			digestRow("longer", "as above", "sha-256=:"+base64Of(make([]byte, 33))+":", malformed),
			digestRow("no bytes", "as above", "sha-256=::", malformed),
			digestRow("without padding", "one form", strings.Replace(sha256Digest(goodBody), "=:", ":", 2), malformed),
			digestRow("not base64", "no panic on any input", "sha-256=:!!!!:", malformed),
			digestRow("not closed", "no panic on any input", "sha-256=:", malformed),
			digestRow("with a parameter", "it has none", sha256Digest(goodBody)+";q=1", malformed),
			digestRow("empty", "it says nothing of the body", "", notCovered),
			one("Repr-Digest", "another field (RFC 9530, section 3)", good9421.with(rename("Content-Digest", "Repr-Digest"), input(`"content-digest"`, `"repr-digest"`)), notCovered),
			one("Digest", "RFC 3230 is obsolete", good9421.with(rename("Content-Digest", "Digest"), input(`"content-digest"`, `"digest"`)), notCovered),
			one("compressed", "the digest is of the bytes as sent", good9421.with(last("Content-Encoding", "gzip"), body(gzipped(goodBody)), input(`"content-type"`, `"content-encoding" "content-type"`)), accepted),
		},
	},
	{
		name:   "RFC 9421: label and tag",
		change: withRFC9421(rfc9421.Options{Label: "shop", Tag: "orders"}),
		attacks: []attack{
			one("the right ones", "a verifier can ask for its own", good9421.with(input("sig1=", "shop="), input(";keyid", `;tag="orders";keyid`)), accepted),
			one("no tag", "RFC 9421, section 2.3: a signature for another application is not one for this", good9421.with(input("sig1=", "shop=")), missing),
			one("another tag", "as above", good9421.with(input("sig1=", "shop="), input(";keyid", `;tag="refunds";keyid`)), refusedBy(sign.CodeInvalid)),
			one("another label", "a signature of somebody else's on the way is not the client's", good9421.with(input(";keyid", `;tag="orders";keyid`)), missing),
			one("another label beside it", "proxies may sign as well", good9421.with(input("sig1=", "shop="), input(";keyid", `;tag="orders";keyid`)).then(
				replace("Signature-Input", func(v string) string { return v + `, proxy=("@method");created=1;keyid="p"` }),
				replace("Signature", func(v string) string { return v + ", proxy=:AAAA:" })), accepted),
		},
	},
}

// by9421 has it signed by somebody else.
func by9421(p *signer) change {
	return func(m *message) {
		m.signer = p
		input(`keyid="demo"`, `keyid="`+p.id+`"`)(m)
	}
}

func nonce9421(nonce string) change {
	return replace("Signature-Input", func(v string) string { return v[:strings.Index(v, ";nonce=")] + `;nonce="` + nonce + `"` })
}

// bytes9421 is a row for other bytes in Signature.
func bytes9421(name, why string, edit func(b []byte) string, w verdict) attack {
	return one(name, why, good9421.then(replace("Signature", func(v string) string {
		b, _ := base64.StdEncoding.DecodeString(strings.Trim(v[len("sig1="):], ":")) // they were encoded here
		return "sig1=:" + edit(b) + ":"
	})), w)
}
