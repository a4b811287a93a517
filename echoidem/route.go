package echoidem

import (
	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// describeRoute fills in route and parameters. The pattern has Echo's own spelling, with the host in front
// if the route belongs to one (Echo.Host).
func describeRoute(c echo.Context, r *core.Request) {
	req := c.Request()
	host := req.Host
	if _, ok := c.Echo().Routers()[host]; !ok {
		host = adapterkit.HostOf(req)
	}
	adapterkit.DescribeRoute(req, host, c.Path(), r)
	if c.Path() == "" {
		return
	}
	values := c.ParamValues()
	for i, name := range c.ParamNames() {
		value := values[i]
		if req.URL.RawPath != "" { // Echo has matched that, and left the values as they are
			value = adapterkit.Unescape(value)
		}
		r.PathParams = append(r.PathParams, core.Pair{Name: name, Value: value})
	}
}
