package adapterkit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/idem-go/idem/core"
)

// DescribeRoute fills in the route of r in to: pattern, in the spelling that all adapters share, or ""
// if none has matched. In front of it stand host (see [HostOf]), and the prefix that was stripped (see
// [PrefixOf]).
func DescribeRoute(r *http.Request, host, pattern string, to *core.Request) {
	prefix := PrefixOf(r)
	to.Route = host + prefix + pattern
	switch {
	case pattern == "":
		to.Route, to.Unmatched = host+prefix+r.URL.EscapedPath(), true
	case prefix != "":
		to.Unmatched, to.Mount = true, "/*"+pattern
	}
}

// HostOf returns the host by which a [http.ServeMux] has chosen the handler of r, as the mux's
// pattern names it, or "". The mux is the one that r.Pattern is of, or the server's own; one that a
// middleware wraps on the way to the server cannot be seen.
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
	if sent := SentPath(r); sent != r.URL.EscapedPath() { // somebody has stripped a prefix
		path, err := url.ParseRequestURI(sent)
		if err != nil {
			return ""
		}
		asked = &http.Request{Method: r.Method, Host: r.Host, URL: path}
	}
	_, pattern := mux.Handler(asked)
	return hostIn(pattern)
}

// PrefixOf returns what has been taken away from the front of r's path since it was sent, as
// [http.StripPrefix] does, or "". The same routes below two prefixes are not the same.
func PrefixOf(r *http.Request) string {
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

// SentPath is the escaped path as the client sent it. A prefix that was stripped since is
// part of it, else two routes below two prefixes could be one.
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

// Unescape decodes text, or leaves it as it is if it cannot be decoded.
func Unescape(text string) string {
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}
