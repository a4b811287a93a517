package ginidem

import (
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// describeRoute fills in route and parameters: Gin's own spelling, but for the name of a
// wildcard, with the host in front if a mux further out has chosen the engine by it, and a
// prefix that was stripped.
func describeRoute(c *gin.Context, r *core.Request) {
	pattern, host, prefix := c.FullPath(), adapterkit.HostOf(c.Request), adapterkit.PrefixOf(c.Request)
	if pattern == "" {
		r.Route, r.Unmatched = host+prefix+c.Request.URL.EscapedPath(), true
		return
	}
	r.Route = pattern
	star := strings.Index(pattern, "/*")
	if star >= 0 {
		r.Route = pattern[:star+2]
	}
	if prefix != "" {
		r.Unmatched, r.Mount = true, "/*"+r.Route
	}
	if host != "" || prefix != "" {
		r.Route = host + prefix + r.Route
	}
	if len(c.Params) == 0 {
		return
	}
	before := len(r.PathParams)
	if !appendParams(r, pattern, c.Request.URL.EscapedPath()) {
		r.PathParams = r.PathParams[:before]
		for i, p := range c.Params {
			if star >= 0 && i == len(c.Params)-1 {
				p.Key, p.Value = "*", strings.TrimPrefix(p.Value, "/")
			}
			r.PathParams = append(r.PathParams, core.Pair{Name: p.Key, Value: p.Value})
		}
	}
}

// appendParams takes the values out of the path: what Gin has in c.Params is decoded or not,
// and '+' a space or not, as the engine's UseRawPath, UseEscapedPath and
// UnescapePathValues say, and the engine does not tell. It reports false if the path does
// not match as it stands, because RemoveExtraSlash, say, has changed it for the match.
func appendParams(r *core.Request, pattern, path string) bool {
	pattern, path = strings.TrimPrefix(pattern, "/"), strings.TrimPrefix(path, "/")
	for more := true; more; {
		if strings.HasPrefix(pattern, "*") {
			r.PathParams = append(r.PathParams, core.Pair{Name: "*", Value: unescape(path)})
			return true
		}
		var part, text string
		var left bool
		part, pattern, more = strings.Cut(pattern, "/")
		text, path, left = strings.Cut(path, "/")
		if more != left {
			return false
		}
		text = unescape(text)
		literal, name, ok := strings.Cut(part, ":")
		if !ok && text != literal || !strings.HasPrefix(text, literal) {
			return false
		}
		if ok {
			r.PathParams = append(r.PathParams, core.Pair{Name: name, Value: text[len(literal):]})
		}
	}
	return true
}

// unescape decodes text, or leaves it as it is if it cannot be decoded.
func unescape(text string) string {
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}
