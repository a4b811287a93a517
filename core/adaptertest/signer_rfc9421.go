package adaptertest

import (
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
)

// as9421 makes an HTTP Message Signature (RFC 9421) of what v1 would sign, with a Content-Digest (RFC 9530).
// It stands in front of all changes.
func as9421(m *message) {
	nonce := m.value("X-Nonce")
	for _, name := range []string{"X-Key-Id", "X-Timestamp", "X-Nonce", "X-Signed-Headers"} {
		m.drop(name)
	}
	m.rfc9421 = true
	m.set("Content-Digest", " "+ownDigest)
	m.set("Signature-Input", ` sig1=("@method" "@authority" "@path" "@query" "content-digest" "content-type" "idempotency-key")`+
		`;created=1700000000;keyid="demo";alg="hmac-sha256";nonce="`+nonce+`"`)
}

// ownDigest stands for the digest of the body that is signed.
const ownDigest = "(of the body)"

func sha256Digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func (m *message) sign9421() {
	if m.value("Content-Digest") == ownDigest {
		m.set("Content-Digest", " "+sha256Digest(string(m.body)))
	}
	label, _, _ := strings.Cut(m.value("Signature-Input"), "=")
	m.set("Signature", " "+label+"=:"+base64.StdEncoding.EncodeToString(m.signer.mac(m))+":")
}

var component = regexp.MustCompile(`"([^"]*)"`)

// base9421 is the signature base (RFC 9421, section 2.5) of a message whose Signature-Input is in its serialised
// form, or as near to it as a message that is malformed can be.
func (m *message) base9421() string {
	_, params, _ := strings.Cut(m.value("Signature-Input"), "=")
	list, _, _ := strings.Cut(params, ")")
	path, query, _ := strings.Cut(m.target, "?")
	authority := strings.TrimSuffix(strings.ToLower(m.value("Host")), ":80")
	var b strings.Builder
	for _, found := range component.FindAllStringSubmatch(list, -1) {
		name := found[1]
		value := m.value(name)
		switch name {
		case "@method":
			value = m.method
		case "@authority":
			value = authority
		case "@path":
			value = path
		case "@query":
			value = "?" + query
		case "@scheme":
			value = "http"
		case "@request-target":
			value = m.target
		case "@target-uri":
			value = "http://" + authority + m.target
		}
		b.WriteString(`"` + name + `": ` + value + "\n")
	}
	b.WriteString(`"@signature-params": ` + params)
	return b.String()
}

// keyID, timestamp and nonce are what the message says of its signature.
func (m *message) keyID() string {
	return m.says("X-Key-Id", `;keyid="([^"]*)"`, `mch_id"?[=:]"?([^"&]*)`)
}
func (m *message) timestamp() string {
	return m.says("X-Timestamp", `;created=(\d*)`, `sent_at"?[=:]"?(\d*)`)
}
func (m *message) nonce() string {
	return m.says("X-Nonce", `;nonce="([^"]*)"`, `nonce_str"?[=:]"?([^"&]*)`)
}

// says returns what v1 has in field, RFC 9421 in a parameter of the signature, and the scheme sorted among the parameters.
func (m *message) says(field, parameter, pair string) string {
	text := m.value("Signature-Input")
	switch {
	case m.sorted:
		parameter, text = pair, m.target+" "+string(m.body)
	case !m.rfc9421:
		return m.value(field)
	}
	found := regexp.MustCompile(parameter).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}
