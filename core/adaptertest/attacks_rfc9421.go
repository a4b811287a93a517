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

// inputAttack is an attack with a Signature-Input in which something is replaced; the message is signed with it.
func inputAttack(name, why, old, by string, w verdict) attack {
	return single(name, why, good9421.with(input(old, by)), w)
}

// covered replaces the list of components.
func covered(list string) change {
	return replace("Signature-Input", func(v string) string { return "sig1=(" + list + v[strings.Index(v, ")"):] })
}

func coveredAttack(name, why, list string, w verdict) attack {
	return single(name, why, good9421.with(covered(list)), w)
}

const usual = `"@method" "@authority" "@path" "@query" "content-digest" "content-type" "idempotency-key"`

// digestAttack is an attack with a Content-Digest, which is covered and signed as it stands.
func digestAttack(name, why, digest string, w verdict) attack {
	return single(name, why, good9421.with(set("Content-Digest", digest)), w)
}

func base64Of[T ~[]byte](b T) string { return base64.StdEncoding.EncodeToString(b) }

func sha512Digest(body string) string {
	sum := sha512.Sum512([]byte(body))
	return "sha-512=:" + base64Of(sum[:]) + ":"
}

// md5Digest is also for tests under FIPS 140, where the attacks must refuse it all the same.
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
			single("the good one", "a message that is signed as the profile defines is accepted", good9421, accepted),
			single("Ed25519", "the key decides on the algorithm", good9421.with(by9421(ed), input("hmac-sha256", "ed25519")), accepted),
			single("v1", "a verifier has one scheme: a message cannot choose another", good, missing),
			{
				name: "v1 beside it", why: "a verifier has one scheme: the fields of another count for nothing", steps: []attackStep{
					attackFunc(func(p *attackRun) {
						other := good.message()
						p.send(good9421.then(last("X-Signature", other.value("X-Signature")), last("X-Key-Id", "bob")).message(), accepted)
						p.send(good9421.then(drop("Signature"), last("X-Signature", other.value("X-Signature")), last("X-Key-Id", "demo")).message(), missing)
					}),
				},
			},
			single("in chunks", "how a body is framed is not signed", good9421.then(inChunks()), accepted),
			single("the method changed", "@method must be covered", good9421.then(method("PUT")), badMAC),
			single("the host changed", "@authority must be covered", good9421.then(host("evil.example.com")), badMAC),
			single("the path changed", "@path must be covered, as it was sent", good9421.then(target("/transfers/a/b?x=2&x=1")), badMAC),
			single("the query changed", "@query must be covered, in the order sent", good9421.then(target("/transfers/a%2Fb?x=1&x=2")), badMAC),
			single("the host in capitals", "RFC 9421, section 2.2.3: @authority is in lower case", good9421.then(host("API.Example.COM")), accepted),
			single("the default port", "RFC 9421, section 2.2.3: @authority leaves it out", good9421.then(host("api.example.com:80")), accepted),
			single("another port", "RFC 9421, section 2.2.3: @authority leaves out the default port and no other", good9421.then(host("api.example.com:8080")), badMAC),
			single("X-Forwarded-Host", "what is not signed changes nothing", good9421.then(host("evil.example.com"), last("X-Forwarded-Host", "api.example.com")), badMAC),
			single("X-HTTP-Method-Override", "what is not signed changes nothing", good9421.then(method("PUT"), last("X-HTTP-Method-Override", "POST")), badMAC),
			single("a covered field removed", "a component that is said to be covered must be there", good9421.then(drop("Content-Type")), notCovered),
			single("a covered field changed", "a covered field cannot be changed", good9421.then(set("Content-Type", "text/plain")), badMAC),
			single("a covered field twice", "a covered field is sent once, so that all look at the same line", good9421.then(last("Content-Type", "text/plain")), duplicate),
			single("a covered field twice, the bad one first", "a covered field is sent once, so that all look at the same line", good9421.then(first("Content-Type", "text/plain")), duplicate),
			single("the key changed", "the Idempotency-Key is signed", good9421.then(set("Idempotency-Key", `"k-2"`)), badMAC),
			single("the key twice", "two Idempotency-Keys are refused", good9421.then(last("Idempotency-Key", `"k-2"`)), duplicate),
			single("space around", "RFC 9421, section 2.1: the space around a value is not part of it", good9421.then(raw("Content-Type", "  application/json ")), accepted),
			single("tabs around", "a server may take tabs around a value for a part of it: then the message is refused, for the handler must not see what was not signed", good9421.then(raw("Content-Type", "\tapplication/json \t")), verdict{either: true}),
			coveredAttack("Idempotency-Key not covered", "an Idempotency-Key must be signed when present", strings.TrimSuffix(usual, ` "idempotency-key"`), notCovered),
			coveredAttack("Content-Type not covered", "a Content-Type must be signed when present: it says how the body is read", strings.Replace(usual, ` "content-type"`, "", 1), notCovered),
			single("a Content-Type that was added", "a Content-Type must be signed when present: it says how the body is read", good9421.with(drop("Content-Type"), input(` "content-type"`, "")).then(last("Content-Type", "text/xml")), notCovered),
			coveredAttack("no @method", "all components of the profile must be covered: a signature of half a request is not one of the request", strings.Replace(usual, `"@method" `, "", 1), notCovered),
			coveredAttack("no @authority", "all components of the profile must be covered: a signature of half a request is not one of the request", strings.Replace(usual, `"@authority" `, "", 1), notCovered),
			coveredAttack("no @path", "all components of the profile must be covered: a signature of half a request is not one of the request", strings.Replace(usual, `"@path" `, "", 1), notCovered),
			coveredAttack("no @query", "all components of the profile must be covered: a signature of half a request is not one of the request", strings.Replace(usual, `"@query" `, "", 1), notCovered),
			coveredAttack("@request-target", "@request-target stands for path and query", `"@method" "@authority" "@request-target" "content-digest" "content-type" "idempotency-key"`, accepted),
			coveredAttack("@request-target without the host", "@request-target does not stand for the host", `"@method" "@request-target" "content-digest" "content-type" "idempotency-key"`, notCovered),
			coveredAttack("@target-uri", "@target-uri stands for host, path and query", `"@method" "@target-uri" "content-digest" "content-type" "idempotency-key"`, accepted),
			coveredAttack("in another order", "components are signed in the order of the list", `"idempotency-key" "content-type" "content-digest" "@query" "@path" "@authority" "@method"`, accepted),
			{
				name: "what cannot be told apart",
				why:  "every refusal for a key, its signature or the digest is the same answer, byte for byte",
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
			single("missing", "a message without it is refused as 401 missing", good9421.then(drop("Signature-Input")), missing),
			single("empty", "an empty field is treated as a missing one", good9421.then(set("Signature-Input", "")), missing),
			single("twice", "the field is sent once", good9421.then(twice("Signature-Input")), duplicate),
			single("twice, the bad one first", "the field is sent once", good9421.then(first("Signature-Input", `sig1=("@method");created=1;keyid="bob";nonce="n-0123456789abcdef"`)), duplicate),
			inputAttack("without a label", "RFC 9421, section 4.1: the field is a dictionary", "sig1=", "", malformed),
			inputAttack("a label in capitals", "RFC 8941, section 3.1.2: keys are in lower case", "sig1=", "SIG1=", malformed),
			inputAttack("an empty label", "RFC 8941, section 3.1.2: a key is not empty", "sig1=", "=", malformed),
			inputAttack("a label without a list", "RFC 9421, section 4.1: the value of a label is an inner list", "sig1=", "sig1=1, sig2=", malformed),
			inputAttack("two signatures", "two signatures are refused: readers differ about which counts", "sig1=", `sig0=("@method");created=1700000000;keyid="demo";nonce="n-0123456789abcdef", sig1=`, malformed),
			single("the label twice", "a list is refused: readers differ about which item counts", good9421.then(replace("Signature-Input", func(v string) string { return v + ", " + v })), malformed),
			single("the signature of another label", "Signature must be that of Signature-Input", good9421.then(replace("Signature", func(v string) string { return "sig2" + v[4:] })), malformed),
			inputAttack("no components", "an empty list of components is refused", "("+usual+")", "()", notCovered),
			inputAttack("no list", "the components are an inner list", "("+usual+")", `"@method"`, malformed),
			inputAttack("an open list", "an inner list has a closing parenthesis", ")", "", malformed),
			inputAttack("no parameters", "created, keyid and nonce must be there", `;created=1700000000;keyid="demo";alg="hmac-sha256";nonce=`, ";x=", malformed),
			inputAttack("tokens", "components are strings", `"@method"`, `@method`, malformed),
			inputAttack("numbers", "components are strings", `"@method"`, `1`, malformed),
			inputAttack("an open string", "a string has a closing quote", `"idempotency-key"`, `"idempotency-key`, malformed),
			inputAttack("no blank between components", "components are separated by blanks", `"@method" `, `"@method"`, malformed),
			inputAttack("commas between components", "components are not separated by commas", `"@method" `, `"@method",`, malformed),
			inputAttack("capitals", "RFC 9421, section 2.1: names are in lower case", `"content-type"`, `"Content-Type"`, malformed),
			inputAttack("a component twice", "RFC 9421, section 2: each component is listed once", `"@method"`, `"@method" "@method"`, malformed),
			inputAttack("an unknown derived component", "a component that is not understood is refused", `"@method"`, `"@method" "@client-cert"`, malformed),
			inputAttack("@status", "@status belongs to responses", `"@method"`, `"@method" "@status"`, malformed),
			inputAttack("@query-param", "@query-param covers one parameter, not the query", `"@query"`, `"@query-param";name="x"`, malformed),
			inputAttack("@signature-params", "RFC 9421, section 2.5: @signature-params must not be in the list", `"@method"`, `"@method" "@signature-params"`, malformed),
			inputAttack("signature", "a signature cannot sign itself", `"@method"`, `"@method" "signature"`, malformed),
			inputAttack("host", "@authority stands for Host", `"@method"`, `"@method" "host"`, malformed),
			inputAttack("an empty name", "a name on the list is not empty", `"@method"`, `"@method" ""`, malformed),
			inputAttack("a name with a line feed in escape", "a component name has no escapes", `"content-type"`, `"content\ntype"`, malformed),
			inputAttack("parameter sf", "a component has no parameters, which would write its value another way", `"content-type"`, `"content-type";sf`, malformed),
			inputAttack("parameter bs", "a component has no parameters, which would write its value another way", `"content-type"`, `"content-type";bs`, malformed),
			inputAttack("parameter key", "a component has no parameter key: a part is not the whole", `"content-type"`, `"content-type";key="a"`, malformed),
			inputAttack("parameter tr", "a component is no trailer, which comes after the verification", `"content-type"`, `"content-type";tr`, malformed),
			inputAttack("parameter req", "the parameter req belongs to responses", `"@method"`, `"@method";req`, malformed),
			coveredAttack("a field that is not there", "a component that is said to be covered must be there", usual+` "x-absent"`, notCovered),
			coveredAttack("a thousand components", "the work for a long list of components is bounded", usual+` "`+strings.Join(headerNames(1000), `" "`)+`"`, malformed.orFront()),

			inputAttack("no created", "created is required: a signature without a time would be good for ever", ";created=1700000000", "", missing),
			inputAttack("created as a string", "the parameter is an integer", "=1700000000", `="1700000000"`, malformed),
			inputAttack("created as a decimal", "the parameter is an integer", "=1700000000", "=1700000000.0", malformed),
			inputAttack("created without a value", "the parameter is an integer", "=1700000000", "", malformed),
			inputAttack("created with a sign", "the parameter is digits only", "=1700000000", "=-1700000000", malformed),
			inputAttack("created with a plus", "the parameter is digits only", "=1700000000", "=+1700000000", malformed),
			inputAttack("created with a leading zero", "RFC 9421, section 2.5: what is signed is the serialised form, which has no leading zero", "=1700000000", "=01700000000", badMAC),
			inputAttack("created too long", "RFC 8941, section 3.3.1: an integer has at most 15 digits", "=1700000000", "=1700000000000000", malformed),
			inputAttack("created overflowing", "created must not wrap around: 2^64 + 1700000000 is not now", "=1700000000", "=18446744075409551616", malformed),
			inputAttack("created twice", "a parameter that is there twice is refused: RFC 8941 takes the last, some readers the first", ";created=1700000000", ";created=1;created=1700000000", malformed),
			inputAttack("created in milliseconds", "the time is in seconds: milliseconds are in the year 55841", "=1700000000", "=1700000000000", notYetValid),
			inputAttack("created at -W", "the window is inclusive", "=1700000000", "=1699999940", accepted),
			inputAttack("created at -W-1", "older than W is expired", "=1700000000", "=1699999939", expired),
			inputAttack("created at +W", "the window is symmetric", "=1700000000", "=1700000060", accepted),
			inputAttack("created at +W+1", "the window has two sides: what is signed for later than W is refused", "=1700000000", "=1700000061", notYetValid),
			inputAttack("expires", "expires is the client's own limit", ";keyid", ";expires=1700000000;keyid", accepted),
			inputAttack("expires, a second too late", "expires is the client's own limit", "1700000000;keyid", "1699999990;expires=1699999999;keyid", expired),
			inputAttack("expires in a year", "expires can only shorten the window", "1700000000;keyid", "1699999939;expires=1731536000;keyid", expired),
			inputAttack("expires before created", "expires is not before created", ";keyid", ";expires=1699999999;keyid", malformed),
			inputAttack("expires as a string", "the parameter is an integer", ";keyid", `;expires="1700000009";keyid`, malformed),

			inputAttack("no keyid", "a message names its key", `;keyid="demo"`, "", missing),
			inputAttack("keyid as a number", "a keyid that is no string is refused, without a panic", `keyid="demo"`, "keyid=123", malformed),
			inputAttack("keyid as a token", "the parameter is a string", `keyid="demo"`, "keyid=demo", malformed),
			inputAttack("keyid as bytes", "the parameter is a string", `keyid="demo"`, "keyid=:ZGVtbw==:", malformed),
			inputAttack("keyid as a boolean", "the parameter is a string", `keyid="demo"`, "keyid", malformed),
			inputAttack("keyid twice", "a list is refused: readers differ about which item counts", `keyid="demo"`, `keyid="bob";keyid="demo"`, malformed),
			inputAttack("keyid with a blank", "a key id is made of visible ASCII characters", `keyid="demo"`, `keyid="de mo"`, malformed),
			inputAttack("keyid empty", "an empty field is treated as a missing one", `keyid="demo"`, `keyid=""`, missing),
			inputAttack("alg left out", "alg may be left out: the key decides", `;alg="hmac-sha256"`, "", accepted),
			inputAttack("alg none", "alg must be the algorithm of the key", `"hmac-sha256"`, `"none"`, wrongAlg),
			inputAttack("alg of another kind", "alg must be the algorithm of the key", `"hmac-sha256"`, `"rsa-pss-sha512"`, wrongAlg),
			inputAttack("alg in capitals", "names of algorithms are compared exactly", `"hmac-sha256"`, `"HMAC-SHA256"`, wrongAlg),
			inputAttack("alg empty", "an empty alg is refused: no algorithm has that name", `"hmac-sha256"`, `""`, malformed),
			inputAttack("alg as a token", "the parameter is a string", `"hmac-sha256"`, "hmac-sha256", malformed),
			single("a public key as a secret", "the key decides on the algorithm: a public key's bytes are no HMAC secret", good9421.with(by9421(&signer{id: "ed", secret: edPublic()})), wrongAlg),
			single("a public key as a secret, without alg", "the key decides on the algorithm, also if the message names none: a public key's bytes are no HMAC secret", good9421.with(by9421(&signer{id: "ed", secret: edPublic()}), input(`;alg="hmac-sha256"`, "")), badMAC),
			single("no nonce", "a nonce is required", good9421.with(replace("Signature-Input", func(v string) string { return v[:strings.Index(v, ";nonce=")] })), missing),
			single("a short nonce", "a nonce has the same form as in v1", good9421.with(nonce9421("0123456789abcde")), malformed),
			single("a nonce with a comma", "a nonce has the same form as in v1", good9421.with(nonce9421("0123456789,abcdef")), malformed),
			single("a nonce with an escape", "a nonce has the same form as in v1", good9421.with(nonce9421(`0123456789\"abcdef`)), malformed),
			single("an empty nonce", "an empty field is treated as a missing one", good9421.with(nonce9421("")), missing),
			inputAttack("an empty tag", "RFC 9421, section 2.3: an application without a name is not the same as none", ";keyid", `;tag="";keyid`, malformed),
			inputAttack("a tag", "RFC 9421, section 2.3: a tag says for which application the signature is: a verifier that has none takes none", ";keyid", `;tag="shop";keyid`, refusedBy(sign.CodeInvalid)),
			inputAttack("an unknown parameter", "an unknown parameter is refused: it may change what is meant", ";keyid", ";scope=1;keyid", malformed),
			single("something behind", "what follows the value is not ignored", good9421.then(replace("Signature-Input", func(v string) string { return v + " x" })), malformed),
			single("a comma behind", "what follows the value is not ignored", good9421.then(replace("Signature-Input", func(v string) string { return v + "," })), malformed),
			single("a semicolon behind", "what follows the value is not ignored", good9421.then(replace("Signature-Input", func(v string) string { return v + ";" })), malformed),
			single("more blanks", "RFC 9421, section 2.5: what is signed is the serialised form", good9421.then(input(`"@method" "@authority"`, `  "@method"   "@authority"`)), accepted),
			single("beyond ASCII", "structured fields are ASCII", good9421.then(input("demo", "dеmo")), malformed.orFront()),
			single("a control character", "structured fields are ASCII", good9421.then(input("demo", "de\x01mo")), malformed.orFront()),
			single("only quotes", "malformed text is refused, without a panic", good9421.then(set("Signature-Input", `"""`)), malformed),
			single("only parentheses", "malformed text is refused, without a panic", good9421.then(set("Signature-Input", strings.Repeat("(", 2000))), malformed),
		}),
	},
	{
		name:   "RFC 9421: an unsigned Content-Type",
		change: withRFC9421(rfc9421.Options{UnsignedContentType: true}),
		attacks: []attack{
			coveredAttack("is taken", "signers that do not cover it are let in where the configuration says so", strings.Replace(usual, ` "content-type"`, "", 1), accepted),
			single("covered and changed", "a signer that covers its Content-Type is protected, whatever the configuration allows others", good9421.then(set("Content-Type", "text/xml")), badMAC),
		},
	},
	{
		name:   "RFC 9421: Signature",
		change: withRFC9421(rfc9421.Options{}),
		attacks: []attack{
			single("missing", "a message without it is refused as 401 missing", good9421.then(drop("Signature")), missing),
			single("empty", "an empty field is treated as a missing one", good9421.then(set("Signature", "")), missing),
			single("twice", "the field is sent once", good9421.then(twice("Signature")), duplicate),
			single("twice, the bad one first", "the field is sent once", good9421.then(first("Signature", "sig1=:"+base64Of(make([]byte, 32))+":")), duplicate),
			bytes9421("all zero", "a signature of zeros, as in an empty buffer, is refused", func(b []byte) string { return base64Of(make([]byte, len(b))) }, badMAC),
			bytes9421("the last bit flipped", "all bytes of the signature are compared", func(b []byte) string { b[len(b)-1] ^= 1; return base64Of(b) }, badMAC),
			bytes9421("a byte less", "a prefix of the signature is refused", func(b []byte) string { return base64Of(b[:len(b)-1]) }, badMAC),
			bytes9421("half", "a truncated MAC is refused", func(b []byte) string { return base64Of(b[:16]) }, badMAC),
			bytes9421("one byte", "all bytes of the MAC are compared, not as many as were sent", func(b []byte) string { return base64Of(b[:1]) }, badMAC),
			bytes9421("a byte more", "what follows the signature is not ignored", func(b []byte) string { return base64Of(append(b, 0)) }, badMAC),
			bytes9421("no bytes", "an empty signature is refused", func([]byte) string { return "" }, malformed),
			bytes9421("without padding", "a signature has one form: base64 with its padding", func(b []byte) string { return strings.TrimRight(base64Of(b), "=") }, malformed),
			bytes9421("for URLs", "a signature has one form: base64 in the standard alphabet", func([]byte) string { return base64.URLEncoding.EncodeToString([]byte(strings.Repeat("\xff", 32))) }, malformed),
			bytes9421("in hexadecimal", "hexadecimal digits are base64 of something else", func(b []byte) string { return strings.Repeat("a1", len(b)) }, badMAC),
			bytes9421("a blank inside", "a signature has no blank inside", func(b []byte) string { s := base64Of(b); return s[:8] + " " + s[8:] }, malformed),
			bytes9421("very long", "a signature has a length limit", func([]byte) string { return base64Of(make([]byte, 6000)) }, malformed.orFront()),
			single("as a string", "the value is a byte sequence", good9421.then(replace("Signature", func(v string) string { return strings.ReplaceAll(v, ":", `"`) })), malformed),
			single("as a token", "the value is a byte sequence", good9421.then(replace("Signature", func(v string) string { return strings.ReplaceAll(v, ":", "") })), malformed),
			single("with a parameter", "the value has no parameters", good9421.then(replace("Signature", func(v string) string { return v + ";alg=none" })), malformed),
			single("without its label", "the field is a dictionary", good9421.then(replace("Signature", func(v string) string { return v[5:] })), malformed),
			single("the label twice", "a list is refused: readers differ about which item counts", good9421.then(replace("Signature", func(v string) string { return "sig1=:" + base64Of(make([]byte, 32)) + ":, " + v })), malformed),
			single("two labels", "two signatures are refused: readers differ about which counts", good9421.then(replace("Signature", func(v string) string { return "sig0=:" + base64Of(make([]byte, 32)) + ":, " + v })), malformed),
		},
	},
	{
		name:   "RFC 9421: Content-Digest",
		change: withRFC9421(rfc9421.Options{}),
		attacks: []attack{
			single("the body flipped", "the digest is compared with the body", good9421.then(flip(0)), digestMismatch),
			single("the last byte flipped", "the digest covers every byte of the body", good9421.then(flip(-1)), digestMismatch),
			single("the body cut", "the digest covers every byte of the body", good9421.then(body(goodBody[:10])), digestMismatch),
			single("the body gone", "a body that was signed cannot be left out", good9421.then(body("")), digestMismatch),
			single("body and digest changed", "the digest is signed", good9421.then(body("x"), set("Content-Digest", sha256Digest("x"))), badMAC),
			digestAttack("of another body", "a digest of another body is refused, even if it is signed", sha256Digest("x"), digestMismatch),
			single("missing", "a body needs a digest: without one anybody could replace it", good9421.with(drop("Content-Digest"), input(` "content-digest"`, "")), notCovered),
			single("missing, and said to be covered", "a component that is said to be covered must be there", good9421.then(drop("Content-Digest")), notCovered),
			single("missing, as empty", "a missing field is not an empty one", good9421.with(set("Content-Digest", "")).then(drop("Content-Digest")), notCovered),
			single("not covered", "the digest must be covered: else anybody could replace it", good9421.with(input(` "content-digest"`, "")), notCovered),
			single("none, and no body", "a message without a body needs no digest", good9421.with(body(""), drop("Content-Digest"), input(` "content-digest"`, "")), accepted),
			single("of no body", "an empty body may have a digest", good9421.with(body("")), accepted),
			single("a body added", "a body that was added is refused", good9421.with(body(""), drop("Content-Digest"), input(` "content-digest"`, "")).then(body("x")), notCovered),
			single("a body and its digest added", "a body that was added is refused", good9421.with(body(""), drop("Content-Digest"), input(` "content-digest"`, "")).then(body("x"), last("Content-Digest", sha256Digest("x"))), notCovered),
			single("twice", "the field is sent once", good9421.then(twice("Content-Digest")), duplicate),
			single("twice, the bad one first", "the field is sent once", good9421.then(first("Content-Digest", sha256Digest("x"))), duplicate),
			single("twice, the bad one last", "the field is sent once", good9421.then(last("Content-Digest", sha256Digest("x"))), duplicate),
			digestAttack("an algorithm twice", "a list is refused: readers differ about which item counts", sha256Digest("x")+", "+sha256Digest(goodBody), malformed),
			digestAttack("SHA-512", "RFC 9530, section 5: sha-512 is an active algorithm, too", sha512Digest(goodBody), accepted),
			digestAttack("two that are good", "two digests are accepted if both are right", sha256Digest(goodBody)+", "+sha512Digest(goodBody), accepted),
			digestAttack("a good one and a bad one", "every digest by an active algorithm must be right", sha256Digest(goodBody)+", "+sha512Digest("x"), digestMismatch),
			digestAttack("a bad one and a good one", "every digest by an active algorithm must be right", sha256Digest("x")+", "+sha512Digest(goodBody), digestMismatch),
			digestAttack("MD5 alone", "RFC 9530, section 5: a deprecated algorithm proves nothing", md5Digest(goodBody), notCovered),
			digestAttack("SHA-1 alone", "RFC 9530, section 5: a deprecated algorithm proves nothing", "sha=:"+base64Of(make([]byte, 20))+":", notCovered),
			digestAttack("a checksum alone", "RFC 9530, section 5: a deprecated algorithm proves nothing", "unixsum=:"+base64Of([]byte("1234"))+":", notCovered),
			digestAttack("an unknown one alone", "an unknown algorithm proves nothing", "sha-3=:"+base64Of(make([]byte, 32))+":", notCovered),
			digestAttack("MD5 beside a good one", "a weak digest beside a good one is ignored", md5Digest(goodBody)+", "+sha256Digest(goodBody), accepted),
			digestAttack("MD5 beside a bad one", "a weak digest does not make up for a bad one", md5Digest(goodBody)+", "+sha256Digest("x"), digestMismatch),
			digestAttack("in capitals", "names of algorithms are in lower case", "SHA-256"+sha256Digest(goodBody)[7:], malformed),
			digestAttack("as RFC 3230 has it", "the form of RFC 3230 is refused", "SHA-256="+strings.Trim(sha256Digest(goodBody)[8:], ":"), malformed),
			digestAttack("as a string", "the value is a byte sequence", strings.ReplaceAll(sha256Digest(goodBody), ":", `"`), malformed),
			digestAttack("cut", "a digest has the length of its algorithm", "sha-256=:"+base64Of(make([]byte, 16))+":", malformed),
			digestAttack("longer", "a digest has the length of its algorithm", "sha-256=:"+base64Of(make([]byte, 33))+":", malformed),
			digestAttack("no bytes", "a digest has the length of its algorithm", "sha-256=::", malformed),
			digestAttack("without padding", "the base64 of a digest has its padding", strings.Replace(sha256Digest(goodBody), "=:", ":", 2), malformed),
			digestAttack("not base64", "malformed text is refused, without a panic", "sha-256=:!!!!:", malformed),
			digestAttack("not closed", "malformed text is refused, without a panic", "sha-256=:", malformed),
			digestAttack("with a parameter", "the value has no parameters", sha256Digest(goodBody)+";q=1", malformed),
			digestAttack("empty", "an empty field says nothing of the body", "", notCovered),
			single("Repr-Digest", "RFC 9530, section 3: Repr-Digest is not Content-Digest", good9421.with(rename("Content-Digest", "Repr-Digest"), input(`"content-digest"`, `"repr-digest"`)), notCovered),
			single("Digest", "RFC 9530 makes the Digest field of RFC 3230 obsolete", good9421.with(rename("Content-Digest", "Digest"), input(`"content-digest"`, `"digest"`)), notCovered),
			single("compressed", "the digest is of the bytes as sent", good9421.with(last("Content-Encoding", "gzip"), body(gzipped(goodBody)), input(`"content-type"`, `"content-encoding" "content-type"`)), accepted),
		},
	},
	{
		name:   "RFC 9421: label and tag",
		change: withRFC9421(rfc9421.Options{Label: "shop", Tag: "orders"}),
		attacks: []attack{
			single("the right ones", "a verifier can ask for its own", good9421.with(input("sig1=", "shop="), input(";keyid", `;tag="orders";keyid`)), accepted),
			single("no tag", "RFC 9421, section 2.3: a signature for another application is not one for this", good9421.with(input("sig1=", "shop=")), missing),
			single("another tag", "RFC 9421, section 2.3: a signature for another application is not one for this", good9421.with(input("sig1=", "shop="), input(";keyid", `;tag="refunds";keyid`)), refusedBy(sign.CodeInvalid)),
			single("another label", "a signature of somebody else's on the way is not the client's", good9421.with(input(";keyid", `;tag="orders";keyid`)), missing),
			single("another label beside it", "proxies may sign as well", good9421.with(input("sig1=", "shop="), input(";keyid", `;tag="orders";keyid`)).then(
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

// bytes9421 is an attack with other bytes in Signature.
func bytes9421(name, why string, edit func(b []byte) string, w verdict) attack {
	return single(name, why, good9421.then(replace("Signature", func(v string) string {
		b, _ := base64.StdEncoding.DecodeString(strings.Trim(v[len("sig1="):], ":")) // they were encoded here
		return "sig1=:" + edit(b) + ":"
	})), w)
}
