package echoidem

import (
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/core"
)

// describeRoute fills in route and parameters: Echo's own spelling, with the host in front
// if the route belongs to one (Echo.Host).
func describeRoute(c echo.Context, r *core.Request) {
	req := c.Request()
	r.Route = c.Path()
	if r.Route == "" {
		r.Route = req.URL.EscapedPath()
		return
	}
	if _, ok := c.Echo().Routers()[req.Host]; ok {
		r.Route = req.Host + r.Route
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
