package echo5idem

import (
	"net/http"
	"sync"

	"github.com/labstack/echo/v5"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/adapterkit/echokit"
	"github.com/idem-go/idem/core/adapter"
)

// exchange is one request and its response. Exchanges are pooled.
type exchange struct {
	echokit.Exchange[*echo.Context]
	front http.ResponseWriter // of an outer middleware; nil: it is Echo's own
	below *echo.Response      // that front writes to, if it tells
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchangeOf returns an exchange from the pool. Only New puts it back.
func exchangeOf(c *echo.Context) *exchange {
	x := exchanges.Get().(*exchange)
	x.Start(x, &version, c)
	if _, ok := c.Response().(*echo.Response); !ok {
		x.front = c.Response()
		x.below, _ = echo.UnwrapResponse(x.front)
	}
	return x
}

var version = echokit.Kit[*echo.Context]{
	Response: func(c *echo.Context) echokit.Response {
		r := responseOf(c)
		return echokit.Response{ResponseWriter: r, Writer: &r.ResponseWriter, Status: &r.Status, Size: &r.Size, Committed: &r.Committed}
	},
	HandleError: func(c *echo.Context, err error) { c.Echo().HTTPErrorHandler(c, err) },
	SetResponse: func(c *echo.Context, w http.ResponseWriter) { c.SetResponse(echo.NewResponse(w, c.Logger())) },
}

// responseOf returns the response of c. If an outer middleware has a writer of its own, which may change what it
// gets, the response is a new one that writes to it.
func responseOf(c *echo.Context) *echo.Response {
	w := c.Response()
	if r, ok := w.(*echo.Response); ok {
		return r
	}
	r := echo.NewResponse(w, c.Logger())
	if below, err := echo.UnwrapResponse(w); err == nil {
		r.ResponseWriter = hintWriter{w, below}
		r.Status, r.Size, r.Committed = below.Status, below.Size, below.Committed
	}
	return r
}

// hintWriter writes a status of 1xx past the response below, which would take it for the final one.
type hintWriter struct {
	http.ResponseWriter
	below *echo.Response
}

func (w hintWriter) WriteHeader(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		w.below.ResponseWriter.WriteHeader(status)
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w hintWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetWriter has the handler, and whoever renders its error, write to the recorder, and not to an outer writer.
func (x *exchange) SetWriter(w http.ResponseWriter) {
	x.Exchange.SetWriter(w)
	if x.front == nil {
		return
	}
	if _, records := w.(*adapterkit.Recorder); records {
		x.Context.SetResponse(x.Response.ResponseWriter)
	} else if x.Context.Response() == x.Response.ResponseWriter { // else an outer middleware has put its own back
		x.Context.SetResponse(x.front)
	}
}

func (x *exchange) Committed() bool {
	return x.Exchange.Committed() || x.below != nil && x.below.Committed
}

// Describe has the pattern in Echo's own spelling.
func (x *exchange) Describe(r *adapter.Request) {
	x.Exchange.Describe(r)
	c, req := x.Context, x.Context.Request()
	r.Native = c
	adapterkit.DescribeRoute(req, hostOf(c), c.Path(), r)
	if c.Path() == "" || c.Get(echo.ContextKeyHeaderAllow) != nil { // the route of another method has no parameters
		return
	}
	values := c.PathValues()
	raw := isRaw(c, values)
	for _, v := range values {
		r.PathParams = append(r.PathParams, x.Param(v.Name, v.Value, raw))
	}
}

// isRaw reports whether the values of parameters are as they were sent. By default Echo matches RawPath, if there is one, and leaves the
// values as they are; a RouterConfig may have it decode them, or match the decoded path.
func isRaw(c *echo.Context, values echo.PathValues) bool {
	if c.Request().URL.RawPath == "" {
		return false
	}
	sent := make([]any, len(values))
	for i, v := range values {
		sent[i] = v.Value
	}
	return c.RouteInfo().Reverse(sent...) == c.Request().URL.RawPath
}

func (x *exchange) ReadBody(limit int64) ([]byte, error) {
	body, err := x.Exchange.ReadBody(limit)
	if err != nil && echo.StatusCode(err) == http.StatusRequestEntityTooLarge {
		return nil, adapter.ErrBodyTooLarge // by BodyLimit
	}
	return body, err
}
