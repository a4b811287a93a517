package echoidem

import (
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// describeRoute fills in route and parameters: Echo's own spelling, with the host in front
// if the route belongs to one (Echo.Host), or a mux further out has chosen this Echo by it, and a
// prefix that was stripped.
func describeRoute(c echo.Context, r *core.Request) {
	req := c.Request()
	r.Route = c.Path()
	r.Unmatched = r.Route == ""
	if r.Unmatched {
		r.Route = req.URL.EscapedPath()
	}
	matched := !r.Unmatched
	if prefix := adapterkit.PrefixOf(req); prefix != "" {
		if matched {
			r.Unmatched, r.Mount = true, "/*"+r.Route
		}
		r.Route = prefix + r.Route
	}
	if _, ok := c.Echo().Routers()[req.Host]; ok {
		r.Route = req.Host + r.Route
	} else if host := adapterkit.HostOf(req); host != "" {
		r.Route = host + r.Route
	}
	if !matched {
		return
	}
	// Echo matches the escaped path if there is one, and leaves the values as they are.
	raw := req.URL.RawPath != ""
	values := c.ParamValues()
	for i, name := range c.ParamNames() {
		value := values[i]
		if raw {
			if decoded, err := url.PathUnescape(value); err == nil {
				value = decoded
			}
		}
		r.PathParams = append(r.PathParams, core.Pair{Name: name, Value: value})
	}
}
