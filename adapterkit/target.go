package adapterkit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/idem-go/idem/core"
)

// DescribeRoute fills in Route, Unmatched and Mount. pattern is in the spelling that all adapters share,
// and "" if none has matched. host, see [HostOf], comes in front, and so does a prefix that was
// stripped: equal routes below two prefixes are two routes.
func DescribeRoute(r *http.Request, host, pattern string, to *core.Request) {
	prefix := prefixOf(r)
	to.Route = host + prefix + pattern
	switch {
	case pattern == "":
		to.Route, to.Unmatched = host+prefix+r.URL.EscapedPath(), true
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
	if sent := SentPath(r); sent != r.URL.EscapedPath() { // a prefix was stripped
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
	prefix, ok := strings.CutSuffix(SentPath(r), r.URL.EscapedPath())
	if !ok {
		return ""
	}
	return prefix
}

// hostIn returns what stands between method and path of a mux's pattern.
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
			return r.URL.EscapedPath()
		}
		uri = after[start:]
	}
	path, _, _ := strings.Cut(uri, "?")
	return path
}

// Unescape decodes text, or returns it unchanged if it can't be decoded.
func Unescape(text string) string {
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}
