package echoidem

import (
	"errors"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// exchange is one request and its response. Exchanges are pooled.
type exchange struct {
	adapterkit.Exchange
	c        echo.Context
	next     echo.HandlerFunc
	response *echo.Response
	status   int          // from before the handler
	direct   answerWriter // for Answer
	renders  bool         // no Finish is mounted: the guard renders the error
	rendered bool         // and has
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchangeOf returns an exchange from the pool. Only New puts it back.
func exchangeOf(c echo.Context) *exchange {
	x := exchanges.Get().(*exchange)
	x.Start(x, c.Request())
	x.c, x.response, x.status = c, c.Response(), c.Response().Status
	return x
}

// Describe has the pattern in Echo's own spelling, with the host in front if the route belongs to one
// (Echo.Host).
func (x *exchange) Describe(r *core.Request) {
	x.Exchange.Describe(r)
	c, req := x.c, x.c.Request()
	r.Native = c
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

func (x *exchange) ReadBody(limit int64) ([]byte, error) {
	body, err := x.Exchange.ReadBody(limit)
	if e, ok := errors.AsType[*echo.HTTPError](err); ok && e.Code == http.StatusRequestEntityTooLarge {
		return nil, core.ErrBodyTooLarge // by BodyLimit
	}
	return body, err
}

func (x *exchange) Answer(r *core.Response) error {
	x.Undo()
	response := x.response
	x.direct = answerWriter{response.Writer, r}
	response.Writer = &x.direct
	defer func() {
		if response.Writer == &x.direct {
			response.Writer = x.direct.ResponseWriter
		}
	}()
	response.WriteHeader(r.Status)
	if len(r.Body) == 0 {
		return nil
	}
	_, err := response.Write(r.Body)
	return err
}

// answerWriter sets the header of an answer after Echo's Before hooks have run: what they add is in the
// answer already.
type answerWriter struct {
	http.ResponseWriter
	answer *core.Response
}

func (w *answerWriter) WriteHeader(status int) {
	adapterkit.SetHeader(w.Header(), w.answer)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// restore gives c its request back.
func restore(c echo.Context, original *http.Request) {
	adapterkit.Adopt(original, c.Request())
	c.SetRequest(original)
}

func (x *exchange) Writer() http.ResponseWriter     { return x.response.Writer }
func (x *exchange) SetWriter(w http.ResponseWriter) { x.response.Writer = w }

func (x *exchange) Next(r *http.Request) error {
	c := x.c
	defer restore(c, c.Request())
	c.SetRequest(r)
	err := x.next(c)
	if err != nil && x.renders && !isSealed(c) {
		c.Error(err)
		x.rendered = x.response.Committed
	}
	return err
}

func (x *exchange) Finisher() *adapterkit.Finisher {
	f, _ := x.c.Get(finisherKey).(*adapterkit.Finisher)
	x.renders = f == nil
	return f
}

func (x *exchange) Reported() (err error, rendered bool) {
	err, _ = x.Exchange.Reported()
	return err, x.renders
}

func (x *exchange) Committed() bool { return x.response.Committed }

func (x *exchange) Forget() {
	x.response.Status, x.response.Size, x.response.Committed = x.status, 0, false
}

// seal gives c a response that has been sent, and ignores writes: error handlers that do not look at
// Committed would write a second answer behind the first one.
func seal(c echo.Context) {
	sent := c.Response()
	sealed := echo.NewResponse(sealedWriter{sent.Writer}, c.Echo())
	sealed.Status, sealed.Size, sealed.Committed = sent.Status, sent.Size, true
	c.SetResponse(sealed)
}

// isSealed reports whether a guard further in has rendered the error already.
func isSealed(c echo.Context) bool {
	_, sealed := c.Response().Writer.(sealedWriter)
	return sealed
}

// sealedWriter ignores writes.
type sealedWriter struct{ http.ResponseWriter }

func (sealedWriter) WriteHeader(int)               {}
func (sealedWriter) Write(b []byte) (int, error)   { return len(b), nil }
func (w sealedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
