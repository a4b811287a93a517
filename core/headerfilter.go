package core

import (
	"net/http"
	"strings"
)

// HeaderFilter says which header fields of a response are stored. The zero HeaderFilter stores all end-to-end fields except
// Set-Cookie, Date, request ids and trace ids.
//
// Hop-by-hop fields (RFC 9110, section 7.6.1, and the fields that Connection names), Content-Length and the fields that an engine
// adds are never stored: they belong to one message, and a replay gets its own.
type HeaderFilter struct {
	only  bool
	names []string
}

// DropHeaders stores what the zero filter stores, except the named fields.
func DropHeaders(names ...string) HeaderFilter { return HeaderFilter{names: names} }

// KeepHeaders stores only the named fields; without arguments it stores nothing. It may name fields that the zero filter drops,
// such as Set-Cookie.
func KeepHeaders(names ...string) HeaderFilter { return HeaderFilter{only: true, names: names} }

// Header fields of answers.
const (
	// ReplayedHeader marks a replayed response; its value is "true".
	ReplayedHeader = "Idempotent-Replayed"
	// ExpiresHeader says when a result will be forgotten, as an HTTP date (RFC 9110, section
	// 5.6.7). [EchoKey] adds it.
	ExpiresHeader = "Idempotency-Key-Expires"
)

var neverStored = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Content-Length", ReplayedHeader, RefusedHeader, ExpiresHeader,
}

var notStoredByDefault = []string{
	"Set-Cookie", "Date",
	"X-Request-Id", "Request-Id", "X-Correlation-Id", "Correlation-Id", "X-Amzn-Requestid",
	"X-Trace-Id", "Trace-Id", "Traceparent", "Tracestate", "Traceresponse", "B3",
	"X-B3-Traceid", "X-B3-Spanid", "X-B3-Parentspanid", "X-B3-Sampled", "X-B3-Flags",
	"Uber-Trace-Id", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "Server-Timing",
}

func (f HeaderFilter) isSet() bool { return f.only || len(f.names) > 0 }

// fault says what is wrong with the filter, or nothing.
func (f HeaderFilter) fault() string {
	for i, name := range f.names {
		switch canonical := http.CanonicalHeaderKey(name); {
		case name == "" || strings.ContainsAny(name, " \t\r\n:"):
			return "holds a name that is none: " + quote(name)
		case f.only && contains(neverStored, name):
			return canonical + " belongs to one message and cannot be kept"
		case !f.only && (contains(neverStored, name) || contains(notStoredByDefault, name)):
			return canonical + " is not stored in any case; leave it out"
		case contains(f.names[:i], name):
			return canonical + " is named twice"
		}
	}
	return ""
}

// stores reports whether a field of r called name is stored.
func (f *HeaderFilter) stores(name string, r *Response) bool {
	if contains(neverStored, name) {
		return false
	}
	for _, field := range r.Header {
		if !strings.EqualFold(field.Name, "Connection") {
			continue
		}
		for option := range strings.SplitSeq(field.Value, ",") {
			if strings.EqualFold(strings.TrimSpace(option), name) {
				return false
			}
		}
	}
	if f.only {
		return contains(f.names, name)
	}
	return !contains(notStoredByDefault, name) && !contains(f.names, name)
}

// contains is a linear search: the lists are short, and most names differ in length.
func contains(names []string, name string) bool {
	for _, n := range names {
		if len(n) == len(name) && strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// isFieldName reports whether s can name a header field: a token (RFC 9110, section 5.6.2).
func isFieldName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
