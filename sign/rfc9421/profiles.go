package rfc9421

import (
	"encoding/base64"
	"slices"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/form"
)

// UCP returns the profile of the Universal Commerce Protocol (https://ucp.dev, Message Signatures), for a business or a platform:
//
//	scheme, err := rfc9421.New(rfc9421.UCP())
//	…
//	verifier, err := sign.NewVerifier(sign.Config{
//		Keys: jwk.NewSource(allow), Scheme: scheme, GuardedByKey: true, Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
//	})
//
// A signature covers "@method", "@authority" and "@path", and "@query" if there is a query. It covers ucp-agent, signature-agent,
// idempotency-key and content-encoding if they are present, and content-digest and content-type if there is a body. A jwk.Source
// looks the key up by keyid in the profile that UCP-Agent names; a [sign.Ring] finds it by its id alone. Keys are ECDSA P-256,
// Ed25519 or RSA.
//
// There is no nonce: the Idempotency-Key stops replays. Methods other than GET, HEAD, OPTIONS, TRACE and QUERY are refused without
// a signed Idempotency-Key, and [sign.Config].GuardedByKey must state that guards require it. created is optional. A message
// without it never expires, so it can be replayed once the guard has forgotten its key. If created is present, the verifier's
// window applies. Clients of this package send it.
//
// A message may have up to 4 signatures. One valid signature is enough, unless [Config].Label names the one to use.
//
// [sign.Verified].EventID is the Idempotency-Key as sent. For a safe method without one, it is a digest of what is signed. A
// message may also be one of Web Bot Auth (tag "web-bot-auth"). The rules of that profile then apply to created, expires and
// keyid.
func UCP() Config { return Config{HTTPS: true, rules: ucp} }

// WebBotAuth returns the profile of Web Bot Auth as the IETF working group defines it (draft-ietf-webbotauth-httpsig-protocol, the
// text of October 2026 for -01). Crawlers and agents use it to identify themselves.
//
// A signature covers "@authority" or "@target-uri", and "signature-agent";key="…". That member is the URL of the JWK Set with the
// keys (jwk.Source). Members with parameters are ignored. A member that is an origin, without a path, means the origin's directory
// (/.well-known/http-message-signatures-directory), as in earlier drafts. So does a Signature-Agent that is a string and covered
// as a whole. created, expires and the tag "web-bot-auth" must be present, and keyid must be [sign.Key.Thumbprint]. There are no
// shared secrets. If there are several signatures, one valid signature is enough, unless [Config].Label names the one to use.
//
// The draft lets a signature cover no more than that. It then shows who sends a request, and nothing about the request: anyone who
// sees the message can send others with its signature to the same host until the message has left the verifier's window. This
// package accepts that for GET, HEAD, OPTIONS, TRACE and QUERY without a body, even without a nonce. Other methods must cover
// "@method", "@path" and, if there is a query, "@query" (or "@target-uri"), and must have a nonce. A body needs content-digest.
func WebBotAuth() Config { return Config{HTTPS: true, Tag: tagWebBotAuth, rules: webBotAuth} }

// WebBotAuthMeunier is [WebBotAuth] by draft-meunier-webbotauth-httpsig-protocol-02. There, the parameter type of a member says
// what the member is: directory or jwks_uri, but not cimd. A member without a type is the same as in WebBotAuth.
func WebBotAuthMeunier() Config {
	return Config{HTTPS: true, Tag: tagWebBotAuth, rules: webBotAuthMeunier}
}

// AdCP returns the profile of requests in AdCP 3.2 (https://adcontextprotocol.org, Security, Signed Requests). A signature covers
// "@method", "@target-uri", "@authority" and, with a body, content-type and content-digest. created, expires (at most 300 s
// later), nonce (16 bytes or more in base64url), keyid, alg and tag must be present. The window is 60 s ahead and, as expires
// allows, up to 360 s behind. Only the signature sig1 is used. Keys are Ed25519 or ECDSA P-256 and have the purpose
// "request-signing" ([sign.KeyConfig]).
//
// "@target-uri" and "@authority" are signed in the protocol's canonical form: dot segments are removed from the path, and %41 is
// A. The handler gets the path as sent. A body that is not JSON, or that has an object with two members of the same name, is
// refused ([sign.CodeMalformed]) after its nonce was used up.
//
// A refused message gets 401 with the protocol's code, WWW-Authenticate: Signature error="request_signature_required" and so on;
// see [sign.Reason]. A key that is not for signatures, or that contradicts itself, is distinguished from an unknown key if it
// comes from jwk.ParseSet or jwk.Source. An owner whose quota of nonces is used up is refused before the signature is checked.
//
// Messages name no URL. Use jwk.Source.At to find a partner's keys.
func AdCP() Config {
	return Config{HTTPS: true, Label: defaultLabel, Tag: tagAdCPRequest, rules: adcp}
}

// AdCP31 is [AdCP] for AdCP 3.0 and 3.1, which write Signature in base64url without padding. Content-Digest is accepted in either
// form, and written in base64, as in the vectors of 3.1.19. A 3.2 endpoint must not accept this profile. A body needs
// content-digest (covers_content_digest "required"); for exceptions see [Config].UnsignedBody.
func AdCP31() Config {
	return Config{HTTPS: true, Label: defaultLabel, Tag: tagAdCPRequest, rules: adcp31}
}

// AdCPWebhooks returns the profile of webhooks in AdCP 3. It is [AdCP] with its own tag, and with Signature in base64url without
// padding. Keys may also have the purpose "webhook-signing".
func AdCPWebhooks() Config {
	return Config{HTTPS: true, Label: defaultLabel, Tag: "adcp/webhook-signing/v1", rules: adcpWebhooks}
}

const (
	tagWebBotAuth  = "web-bot-auth"
	tagAdCPRequest = "adcp/request-signing/v1"

	// shortLife is how long a signature is valid, in seconds, if the client does not say; in AdCP also at most.
	shortLife = 300
	// adcpSkew is how far clocks may differ, in seconds.
	adcpSkew = 60
)

// rules are what the profiles differ in.
type rules struct {
	name       string
	parameters parameter // that must be present, besides keyid
	isNonce    func(string) bool
	nonces     string           // what isNonce wants
	noNonce    bool             // the message's nonce does not count
	lifetime   int64            // how much later expires may be, in seconds; zero: any time
	skew       int64            // how late a message may be after it has expired, in seconds
	algorithms []sign.Algorithm // nil: all
	purposes   []string         // of keys; nil: any

	needs     func(*sign.Message) coverage
	signs     []string         // the components that a client covers first
	named     bool             // a message must cover all of these by their names
	cover     []form.FieldName // fields that must be covered if they are present, besides those of all profiles
	agent     bool             // Signature-Agent may be covered by its member
	typed     bool             // with a body, content-type must be covered
	check     func(*sign.Message, parameters) error
	locate    func(m *sign.Message, p parameters, label string) (url string, err error)
	several   bool // one good signature of several is enough
	adcp      bool // @target-uri and @authority are in canonical form
	base64URL bool
	demands   sign.Demands
}

var (
	ucpAgent   = form.NewFieldName("UCP-Agent")
	agentField = form.NewFieldName("Signature-Agent")

	asymmetric = []sign.Algorithm{sign.Ed25519, sign.ECDSAP256SHA256, sign.RSAPSSSHA512}
)

const base64Nonces = "16 to 128 of A-Z a-z 0-9 . _ ~ - + / ="

var strict = &rules{
	name: "rfc9421", parameters: created | nonce, isNonce: form.IsBase64Nonce, nonces: base64Nonces,
	needs: func(*sign.Message) coverage { return wholeTarget },
}

var ucp = &rules{
	name: "ucp", noNonce: true, algorithms: asymmetric,
	needs: asSent, signs: []string{"@method", "@authority", "@path"}, cover: []form.FieldName{ucpAgent}, agent: true, typed: true,
	check: checkUCP, locate: locateUCP, several: true, demands: sign.Demands{Guard: true},
}

var webBotAuth = webBotAuthRules(locateAgent)

var webBotAuthMeunier = webBotAuthRules(locateTyped)

func webBotAuthRules(locate func(m *sign.Message, p parameters, label string) (string, error)) *rules {
	return &rules{
		name: tagWebBotAuth, parameters: created | expires, isNonce: form.IsBase64Nonce, nonces: base64Nonces, algorithms: asymmetric,
		needs: func(m *sign.Message) coverage {
			if isSafe(m.Method) {
				return authority
			}
			return asSent(m)
		},
		signs: []string{"@method", "@authority", "@path"}, agent: true, check: checkWebBotAuth, locate: locate, several: true,
	}
}

var adcp = adcpRules(func(r *rules) {})

var adcp31 = adcpRules(func(r *rules) { r.base64URL = true })

var adcpWebhooks = adcpRules(func(r *rules) {
	r.name, r.base64URL, r.purposes = "adcp-webhooks", true, []string{"request-signing", "webhook-signing"}
	r.demands.Challenge = adcpChallenge("webhook_")
})

func adcpRules(change func(*rules)) *rules {
	r := &rules{
		name: "adcp", parameters: created | expires | nonce | alg, isNonce: isAdCPNonce,
		nonces: "16 to 96 bytes in base64url without padding", lifetime: shortLife, skew: adcpSkew,
		algorithms: []sign.Algorithm{sign.Ed25519, sign.ECDSAP256SHA256}, purposes: []string{"request-signing"},
		needs: func(*sign.Message) coverage { return 0 }, signs: []string{"@method", "@target-uri", "@authority"}, named: true,
		typed: true, check: checkAdCP, adcp: true,
		demands: sign.Demands{
			Behind: (shortLife + adcpSkew) * time.Second, Ahead: adcpSkew * time.Second,
			Challenge: adcpChallenge("request_"), QuotaFirst: true, Finish: checkNames,
		},
	}
	change(r)
	return r
}

// asSent is what a signature must cover of a request's target.
func asSent(m *sign.Message) coverage {
	if _, present := m.Query(); present {
		return method | authority | path | query
	}
	return method | authority | path
}

// isSafe reports whether a method changes nothing (RFC 9110, section 9.2.1; RFC 10008).
func isSafe(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "QUERY":
		return true
	}
	return false
}

// uses reports whether the profile uses an algorithm.
func (r *rules) uses(a sign.Algorithm) bool {
	return r.algorithms == nil || slices.Contains(r.algorithms, a)
}

// complete sets the parameters that a client sends in the profile.
func (r *rules) complete(m *sign.Message, p *parameters, key *sign.Key) error {
	if !r.uses(key.Algorithm()) {
		return sign.Errorf(sign.ReasonWrongAlgorithm, "the profile does not use %s", key.Algorithm())
	}
	if r.noNonce {
		p.nonce, p.alg = "", ""
		if len(m.Source.Values(agentField.Canonical)) > 0 {
			p.tag = tagWebBotAuth
		}
	}
	if r != strict && p.expires == 0 && (r.parameters&expires != 0 || p.tag == tagWebBotAuth) {
		p.expires = p.created + shortLife
	}
	if r.agent && p.tag == tagWebBotAuth && p.keyID != key.Thumbprint() {
		return sign.Errorf(sign.CodeInvalid, "the key's id is %q, but it must be its thumbprint, %s", p.keyID, key.Thumbprint())
	}
	return nil
}

// checkUCP checks what only UCP wants.
func checkUCP(m *sign.Message, p parameters) error {
	if !isSafe(m.Method) && !slices.Contains(p.components, idempotencyKey.Lower) {
		return sign.Errorf(sign.ReasonUncovered, "a %s must have an Idempotency-Key, and cover it", m.Method)
	}
	if p.tag == tagWebBotAuth || len(m.Source.Values(agentField.Canonical)) > 0 {
		return checkAgent(m, p)
	}
	return nil
}

// checkWebBotAuth checks what only Web Bot Auth wants.
func checkWebBotAuth(m *sign.Message, p parameters) error {
	if p.nonce == "" && !isSafe(m.Method) {
		return sign.Errorf(sign.ReasonParameterMissing, "the parameter nonce, which a %s must have", m.Method)
	}
	return checkAgent(m, p)
}

// locateUCP returns the URL of the sender's profile, which holds its keys. Without UCP-Agent, Signature-Agent says where they are.
func locateUCP(m *sign.Message, p parameters, label string) (string, error) {
	value, lines := m.Field(ucpAgent.Canonical)
	switch {
	case lines == 0 && p.tag == tagWebBotAuth:
		return locateTyped(m, p, label)
	case lines == 0:
		return "", nil
	}
	return profileURL(value)
}

// isAdCPNonce reports whether text is a nonce of AdCP.
func isAdCPNonce(text string) bool {
	b, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && 16 <= len(b) && len(b) <= 96
}
