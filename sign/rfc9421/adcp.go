package rfc9421

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"mime"
	"slices"
	"strings"

	"github.com/idem-go/idem/sign"
)

// checkAdCP refuses hosts that have no canonical form (AdCP, URL canonicalization, steps 2 and 3), and several media types.
func checkAdCP(m *sign.Message, p parameters) error {
	if canonicalHost(m.Authority()) == "" || strings.Contains(m.Host, "%") { // a zone, which a client does not send
		return sign.Errorf(sign.ReasonBadTarget, "%q is not a host in AdCP", m.Host)
	}
	if value, _ := m.Field(contentType.Canonical); slices.Contains(p.components, contentType.Lower) && value != "" {
		if _, _, err := mime.ParseMediaType(value); err != nil {
			return sign.Errorf(sign.ReasonBadHeader, "%s is not one media type", contentType.Canonical)
		}
	}
	return nil
}

// adcpCodes are AdCP's codes (Transport error taxonomy), without their prefix. What has none here is no fault of the signature.
var adcpCodes = map[error]string{
	sign.ReasonUnsigned:         "signature_required",
	sign.ReasonParameterMissing: "signature_params_incomplete",
	sign.ReasonWrongTag:         "signature_tag_invalid",
	sign.ReasonWrongAlgorithm:   "signature_alg_not_allowed",
	sign.ReasonBadWindow:        "signature_window_invalid",
	sign.ReasonUncovered:        "signature_components_incomplete",
	sign.ReasonUnknownKey:       "signature_key_unknown",
	sign.ReasonKeyNotYetValid:   "signature_key_unknown",
	sign.ReasonKeyExpired:       "signature_key_unknown",
	sign.ReasonWrongPurpose:     "signature_key_purpose_invalid",
	sign.ReasonRevokedKey:       "signature_key_revoked",
	sign.ReasonBadSignature:     "signature_invalid",
	sign.ReasonDigestMismatch:   "signature_digest_mismatch",
	sign.ReasonBadTarget:        "target_uri_malformed",
	sign.ReasonBadBody:          "body_malformed",
	sign.ReasonKeysUnavailable:  "signature_jwks_unavailable",
	sign.ReasonBadHeader:        "signature_header_malformed",

	sign.CodeExpired:         "signature_window_invalid",
	sign.CodeNotYetValid:     "signature_window_invalid",
	sign.CodeReplayed:        "signature_replayed",
	sign.CodeRateLimited:     "signature_rate_abuse",
	sign.CodeMalformed:       "signature_header_malformed",
	sign.CodeDuplicateHeader: "signature_header_malformed",
	sign.CodeInvalid:         "signature_invalid",
}

// adcpChallenge returns the WWW-Authenticate with AdCP's code.
func adcpChallenge(prefix string) func(e *sign.Error) string {
	return func(e *sign.Error) string {
		code := cmp.Or(adcpCodes[e.Reason], adcpCodes[e.Code])
		if code == "" {
			return ""
		}
		return `Signature error="` + prefix + code + `"`
	}
}

// canonicalHost returns an authority in lower case and without the last dot of its host, or "".
func canonicalHost(authority string) string {
	host, port := strings.ToLower(authority), ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host, port = host[:i], host[i:]
	}
	if strings.HasPrefix(host, "[") { // of IPv6, without a zone
		if !strings.HasSuffix(host, "]") || strings.Contains(host, "%") {
			return ""
		}
		return host + port
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || strings.ContainsAny(host, "[]:") || strings.HasPrefix(host, ".") ||
		strings.HasSuffix(host, ".") || strings.Contains(host, "..") {
		return ""
	}
	return host + port
}

// canonicalPath removes the dot segments of a path (RFC 3986, section 5.2.4), decodes what needs no percent-escape (section
// 6.2.2.2), and writes other escapes in capitals. It keeps empty segments.
func canonicalPath(path string) string {
	var kept []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		dots := s == "." || s == ".."
		if s == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		switch {
		case !dots:
			kept = append(kept, s)
		case i == len(segments)-1:
			kept = append(kept, "")
		}
	}
	return "/" + canonicalEscapes(strings.Join(kept, "/"))
}

func canonicalEscapes(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		high, low := -1, -1
		if text[i] == '%' && i+2 < len(text) {
			high, low = strings.IndexByte(hexDigits, upper(text[i+1])), strings.IndexByte(hexDigits, upper(text[i+2]))
		}
		if high < 0 || low < 0 {
			b.WriteByte(text[i])
			continue
		}
		switch c := byte(high<<4 | low); {
		case isUnreserved(c):
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hexDigits[high], hexDigits[low]})
		}
		i += 2
	}
	return b.String()
}

const hexDigits = "0123456789ABCDEF"

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// isUnreserved reports whether a character is unreserved in RFC 3986, section 2.3.
func isUnreserved(c byte) bool {
	return 'A' <= upper(c) && upper(c) <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// fromBase64URL writes the byte sequences of a dictionary, which may be in base64url without padding, as RFC 8941 has them. A
// sequence that mixes the alphabets stays as it is, which the parser refuses.
func fromBase64URL(value string) string {
	return sequences(value, func(text string) string {
		if strings.ContainsAny(text, "+/=") || len(text)%4 == 1 {
			return text
		}
		text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
		return text + strings.Repeat("=", (4-len(text)%4)%4)
	})
}

// toBase64URL is the reverse of fromBase64URL.
func toBase64URL(value string) string {
	return sequences(value, func(text string) string {
		return strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(text)
	})
}

// sequences changes what is between colons outside strings.
func sequences(value string, change func(string) string) string {
	if strings.Contains(value, `"`) { // neither Signature nor Content-Digest has strings
		return value
	}
	parts := strings.Split(value, ":")
	for i := 1; i < len(parts)-1; i += 2 {
		parts[i] = change(parts[i])
	}
	return strings.Join(parts, ":")
}

// checkNames refuses a body that is not JSON, and one with an object that has two members of one name: parsers differ in which
// they take.
func checkNames(m *sign.Message) error {
	body, err := m.Body()
	if err != nil || len(body) == 0 {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	type level struct {
		names map[string]bool // of an object; nil: of an array
		name  bool            // the next text is a name
	}
	var levels []level
	for ended := false; ; {
		token, err := d.Token()
		if err == io.EOF && ended {
			return nil
		}
		if err != nil || ended {
			return sign.Errorf(sign.ReasonBadBody, "the body is not JSON")
		}
		var top *level
		if len(levels) > 0 {
			top = &levels[len(levels)-1]
		}
		text, isText := token.(string)
		switch {
		case top != nil && top.name && isText:
			if top.names[text] {
				return sign.Errorf(sign.ReasonBadBody, "an object in the body has two members with the same name")
			}
			top.names[text], top.name = true, false
			continue
		case token == json.Delim('{'):
			levels = append(levels, level{make(map[string]bool), true})
			continue
		case token == json.Delim('['):
			levels = append(levels, level{})
			continue
		case token == json.Delim('}'), token == json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
		if len(levels) == 0 {
			ended = true
			continue
		}
		top = &levels[len(levels)-1]
		top.name = top.names != nil // a value has ended
	}
}
