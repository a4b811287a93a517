package ginidem

import (
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
)

// describeRoute fills in route and parameters. The pattern has Gin's own spelling, but for the name of
// a wildcard.
func describeRoute(c *gin.Context, r *adapter.Request) {
	pattern := c.FullPath()
	spelled := pattern
	star := strings.Index(pattern, "/*")
	if star >= 0 {
		spelled = pattern[:star+2]
	}
	adapterkit.DescribeRoute(c.Request, adapterkit.HostOf(c.Request), spelled, r)
	if pattern == "" || len(c.Params) == 0 {
		return
	}
	path := adapterkit.EscapedPath(c.Request.URL)
	if params, ok := appendParams(r.PathParams, pattern, path); ok {
		r.PathParams = params
		return
	}
	for i, p := range c.Params {
		if star >= 0 && i == len(c.Params)-1 {
			tail, ok := adapterkit.Tail(path, strings.TrimPrefix(p.Value, "/"))
			if !ok { // Gin has made another rest of it
				r.PathParams = r.PathParams[:0]
				adapterkit.DescribeRoute(c.Request, adapterkit.HostOf(c.Request), "", r)
				r.Mount = spelled
				return
			}
			p.Key, p.Value = "*", adapterkit.Rest(tail)
		}
		r.PathParams = append(r.PathParams, adapter.Pair{Name: p.Key, Value: p.Value})
	}
}

// appendParams takes the values of the parameters from the path. What Gin has in c.Params is decoded or not,
// and '+' a space or not, by the engine's UseRawPath, UseEscapedPath and UnescapePathValues, which the
// engine does not tell. ok is false if the path does not match as it stands: RemoveExtraSlash, say, has changed
// it for the match.
func appendParams(params []adapter.Pair, pattern, path string) (_ []adapter.Pair, ok bool) {
	pattern, path = strings.TrimPrefix(pattern, "/"), strings.TrimPrefix(path, "/")
	for more := true; more; {
		if strings.HasPrefix(pattern, "*") {
			return append(params, adapter.Pair{Name: "*", Value: adapterkit.Rest(path)}), true
		}
		var part, text string
		var left bool
		part, pattern, more = strings.Cut(pattern, "/")
		text, path, left = strings.Cut(path, "/")
		literal, name, isParam := strings.Cut(part, ":")
		text = adapterkit.Unescape(text)
		if more != left || !isParam && text != literal || !strings.HasPrefix(text, literal) {
			return nil, false
		}
		if isParam {
			params = append(params, adapter.Pair{Name: name, Value: text[len(literal):]})
		}
	}
	return params, true
}
