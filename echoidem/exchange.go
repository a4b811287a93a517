package echoidem

import (
	"errors"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/adapterkit/echokit"
	"github.com/idem-go/idem/core/adapter"
)

// exchange is one request and its response. Exchanges are pooled.
type exchange struct {
	echokit.Exchange[echo.Context]
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchangeOf returns an exchange from the pool. Only New puts it back.
func exchangeOf(c echo.Context) *exchange {
	x := exchanges.Get().(*exchange)
	x.Start(x, &version, c)
	return x
}

var version = echokit.Kit[echo.Context]{
	Response: func(c echo.Context) echokit.Response {
		r := c.Response()
		return echokit.Response{ResponseWriter: r, Writer: &r.Writer, Status: &r.Status, Size: &r.Size, Committed: &r.Committed}
	},
	HandleError: func(c echo.Context, err error) { c.Error(err) },
	SetResponse: func(c echo.Context, w http.ResponseWriter) { c.SetResponse(echo.NewResponse(w, c.Echo())) },
}

// Describe has the pattern in Echo's own spelling, with the host before it if the route belongs to one
// (Echo.Host).
func (x *exchange) Describe(r *adapter.Request) {
	x.Exchange.Describe(r)
	c, req := x.Context, x.Context.Request()
	r.Native = c
	adapterkit.DescribeRoute(req, hostOf(c), c.Path(), r)
	if c.Path() == "" {
		return
	}
	values := c.ParamValues()
	for i, name := range c.ParamNames() { // if there is a RawPath, Echo has matched that, and left the values as they are
		r.PathParams = append(r.PathParams, x.Param(name, values[i], req.URL.RawPath != ""))
	}
}

// hostOf returns the host to which the routes of c belong, or "": that of Echo.Host, also of the server's Echo further out, or
// that in the pattern of a mux.
func hostOf(c echo.Context) string {
	r := c.Request()
	if c.Echo().Routers()[r.Host] != nil {
		return r.Host
	}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		if outer, ok := server.Handler.(*echo.Echo); ok && outer.Routers()[r.Host] != nil {
			return r.Host
		}
	}
	return adapterkit.HostOf(r)
}

func (x *exchange) ReadBody(limit int64) ([]byte, error) {
	body, err := x.Exchange.ReadBody(limit)
	if e, ok := errors.AsType[*echo.HTTPError](err); ok && e.Code == http.StatusRequestEntityTooLarge {
		return nil, adapter.ErrBodyTooLarge // by BodyLimit
	}
	return body, err
}
