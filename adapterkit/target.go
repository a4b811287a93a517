package adapterkit

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core/adapter"
)

// DescribeRoute fills in Route, Unmatched and Mount. pattern is in the spelling that all adapters share,
// and "" if none has matched. host, see [HostOf], comes first, and so does a prefix that was
// stripped: equal routes below two prefixes are two routes.
func DescribeRoute(r *http.Request, host, pattern string, to *adapter.Request) {
	prefix := prefixOf(r)
	to.Route = host + prefix + pattern
	switch {
	case pattern == "":
		to.Route, to.Unmatched = host+prefix+EscapedPath(r.URL), true
	case prefix != "":
		to.Unmatched, to.Mount = true, "/*"+pattern
	}
}

// HostOf returns the host in the pattern by which a [http.ServeMux] has chosen the handler of r, or "".
// The pattern is r.Pattern, or that of the server's own mux; a mux that a middleware wraps can't be
// seen.
func HostOf(r *http.Request) string {
	if host := hostIn(r.Pattern); host != "" {
		return host
	}
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return ""
	}
	mux, _ := server.Handler.(*http.ServeMux)
	if server.Handler == nil {
		mux = http.DefaultServeMux
	}
	if mux == nil {
		return ""
	}
	asked := r
	if sent := SentPath(r); sent != EscapedPath(r.URL) { // a prefix was stripped
		path, err := url.ParseRequestURI(sent)
		if err != nil {
			return ""
		}
		asked = &http.Request{Method: r.Method, Host: r.Host, URL: path}
	}
	_, pattern := mux.Handler(asked)
	return hostIn(pattern)
}

// prefixOf returns what [http.StripPrefix] has taken from the front of r's path, or "".
func prefixOf(r *http.Request) string {
	prefix, ok := strings.CutSuffix(SentPath(r), EscapedPath(r.URL))
	if !ok {
		return ""
	}
	return prefix
}

// hostIn returns what is between method and path of a mux's pattern.
func hostIn(pattern string) string {
	host, _, _ := strings.Cut(pattern, "/")
	if i := strings.LastIndexAny(host, " \t"); i >= 0 {
		host = host[i+1:]
	}
	return host
}

// SentPath returns the escaped path as the client sent it, with a prefix that was stripped since.
func SentPath(r *http.Request) string {
	uri := r.RequestURI
	if !strings.HasPrefix(uri, "/") { // the absolute form (RFC 9112, section 3.2.2), or none
		_, after, ok := strings.Cut(uri, "://")
		start := strings.IndexByte(after, '/')
		if !ok || start < 0 {
			return EscapedPath(r.URL)
		}
		uri = after[start:]
	}
	path, _, _ := strings.Cut(uri, "?")
	return path
}

// EscapedPath is u.EscapedPath, but as it was sent also if that has characters that should have been escaped: escaped anew,
// "a%2Fé" is "a/%C3%A9", and so another path.
func EscapedPath(u *url.URL) string {
	if u.RawPath != "" && Unescape(u.RawPath) == u.Path {
		return u.RawPath
	}
	return u.EscapedPath()
}

// Rest makes the value of a wildcard, see [adapter.Request.PathParams], of the rest of the path as it was sent. A rest that can't
// be decoded stays as it is.
func Rest(sent string) string {
	if strings.IndexByte(sent, '%') < 0 {
		return sent
	}
	var rest strings.Builder
	for i := 0; i < len(sent); i++ {
		if sent[i] != '%' {
			rest.WriteByte(sent[i])
			continue
		}
		c, ok := unescapeByte(sent[i:])
		switch {
		case !ok:
			return sent
		case strings.IndexByte(":/?#[]@!$&'()*+,;=%", c) >= 0:
			rest.WriteString(strings.ToUpper(sent[i : i+3]))
		default:
			rest.WriteByte(c)
		}
		i += 2
	}
	return rest.String()
}

// Tail returns the end of an escaped path that is decoded in a wildcard. ok is false if the path does not end so.
func Tail(path, decoded string) (tail string, ok bool) {
	at := len(path)
	for i := len(decoded) - 1; i >= 0; i-- {
		if at--; at < 0 {
			return "", false
		}
		c := path[at]
		if at >= 2 && path[at-2] == '%' {
			at -= 2
			c, _ = unescapeByte(path[at:])
		}
		if c != decoded[i] && (c != '+' || decoded[i] != ' ') { // Fiber takes a plus sign for a blank
			return "", false
		}
	}
	return path[at:], true
}

// unescapeByte decodes the %XX at the beginning of text.
func unescapeByte(text string) (c byte, ok bool) {
	if len(text) < 3 {
		return 0, false
	}
	n, err := strconv.ParseUint(text[1:3], 16, 8)
	return byte(n), err == nil
}

// Unescape decodes text, or returns it unchanged if it can't be decoded.
func Unescape(text string) string {
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}
