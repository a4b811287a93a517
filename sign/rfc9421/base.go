package rfc9421

import (
	"net/http"
	"strings"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/form"
)

// coverage is the set of required parts of a message that a signature covers.
type coverage uint8

const (
	method coverage = 1 << iota
	authority
	path
	query
	scheme
	digest

	// wholeTarget is what every signature must cover in the strict profile. A message without a body needs no digest.
	wholeTarget = method | authority | path | query
)

// derivedComponents are the derived components that may be covered (RFC 9421, section 2.2), and what they cover. @request-target
// does not cover the host, which its usual form does not contain. @query-param is missing, because the whole query must be
// covered. @status belongs to responses.
var derivedComponents = map[string]coverage{
	"@method":         method,
	"@authority":      authority,
	"@path":           path,
	"@query":          query,
	"@scheme":         scheme,
	"@request-target": path | query,
	"@target-uri":     scheme | authority | path | query,
}

// String returns the names of the components in c.
func (c coverage) String() string {
	var names []string
	for _, name := range [...]string{"@method", "@authority", "@path", "@query", "@scheme"} {
		if c&derivedComponents[name] != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// coverageOf returns what a component covers, which is zero for most fields. ok is false if it must not be covered.
func coverageOf(name string) (covers coverage, ok bool) {
	switch name { // the usual ones
	case "@method":
		return method, true
	case "@authority":
		return authority, true
	case "@path":
		return path, true
	case "@query":
		return query, true
	case "content-digest":
		return digest, true
	case "content-type", "idempotency-key":
		return 0, true
	}
	if strings.HasPrefix(name, "@") {
		covers = derivedComponents[name]
		return covers, covers != 0
	}
	return 0, canCover(name)
}

// canCover reports whether a header field may be covered. Names are in lower case (RFC 9421, section 2.1). The two
// fields of the signature itself may not.
func canCover(name string) bool {
	return form.IsLowerToken(name) && !form.IsHopByHop(name) && name != "signature" && name != "signature-input"
}

// appendBase appends the lines of the covered components to the signature base (RFC 9421, section 2.5), each with its line feed.
// digestValue, unless it is empty, replaces Content-Digest.
func (s *profile) appendBase(b []byte, m *sign.Message, components []string, digestValue string) ([]byte, error) {
	for _, name := range components {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `": `...)
		start := len(b)
		switch {
		case name[0] == '@':
			b = s.appendDerived(b, m, name)
		case name == contentDigest.Lower && digestValue != "":
			b = append(b, digestValue...)
		case member(name) != "":
			value, err := agentValue(m, member(name))
			if err != nil {
				return nil, err
			}
			b = append(b, value...)
		default:
			value, lines := m.Field(s.canonical(name))
			switch {
			case lines == 0:
				return nil, sign.Errorf(sign.ReasonUncovered, "%s is listed as covered, but not present", name)
			case lines > 1:
				return nil, sign.Errorf(sign.CodeDuplicateHeader, "%s", name)
			}
			if form.Trim(value) != value {
				// It would reach the handler unsigned.
				return nil, sign.Errorf(sign.CodeMalformed, "%s has white space around its value", name)
			}
			b = append(b, value...)
		}
		if !isText(b[start:]) {
			return nil, sign.Errorf(sign.CodeMalformed, "%s has characters that cannot be signed: only ASCII without controls can", name)
		}
		b = append(b, '\n')
	}
	return b, nil
}

// appendParams appends the last line of the signature base (RFC 9421, section 2.5).
func appendParams(b []byte, params string) []byte {
	b = append(b, `"@signature-params": `...)
	return append(b, params...)
}

// appendDerived appends the value of a derived component (RFC 9421, section 2.2).
func (s *profile) appendDerived(b []byte, m *sign.Message, name string) []byte {
	switch name {
	case "@method":
		return append(b, m.Method...)
	case "@authority":
		return s.appendAuthority(b, m)
	case "@scheme":
		return append(b, s.scheme(m)...)
	case "@request-target":
		return append(b, m.Target...)
	case "@path":
		return append(b, m.Path()...)
	case "@query":
		q, _ := m.Query()
		return append(append(b, '?'), q...)
	}
	// @target-uri, built as in RFC 9110, section 7.1.
	targetPath := m.Path()
	if s.rules.adcp {
		targetPath = canonicalPath(targetPath)
	}
	b = append(b, s.scheme(m)...)
	b = append(b, "://"...)
	b = s.appendAuthority(b, m)
	if m.Target != "*" {
		b = append(b, targetPath...)
	}
	if q, ok := m.Query(); ok {
		b = append(append(b, '?'), q...)
	}
	return b
}

func (s *profile) scheme(m *sign.Message) string {
	if m.TLS || s.https {
		return "https"
	}
	return "http"
}

// appendAuthority appends the host in lower case. It leaves out an empty port and the scheme's default port (RFC 9421, section
// 2.2.3; RFC 9110, section 4.2.3).
func (s *profile) appendAuthority(b []byte, m *sign.Message) []byte {
	host := m.Authority()
	if s.rules.adcp {
		host = canonicalHost(host)
	}
	standard := ":80"
	if m.TLS || s.https {
		standard = ":443"
	}
	if rest, ok := strings.CutSuffix(host, standard); ok {
		host = rest
	} else {
		host = strings.TrimSuffix(host, ":")
	}
	return form.AppendLower(b, host)
}

// canonical returns http.CanonicalHeaderKey(lower). For common names it allocates nothing.
func (s *profile) canonical(lower string) string {
	switch lower {
	case "content-digest":
		return headerDigest
	case "content-type":
		return "Content-Type"
	}
	for _, names := range [2][]form.FieldName{s.cover, s.require} {
		for _, f := range names {
			if f.Lower == lower {
				return f.Canonical
			}
		}
	}
	return http.CanonicalHeaderKey(lower)
}

// isText reports whether a component's value fits in one line of a signature base, which is ASCII.
func isText(value []byte) bool {
	for _, c := range value {
		if c < ' ' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}
