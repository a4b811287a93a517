// Package echokit is what the adapters for the versions of Echo share. Users do not need it.
package echokit

import (
	"cmp"
	"context"
	"net/http"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// Kit is what the adapters for the versions of Echo have to say about theirs; all else they share. C is its context.
type Kit[C Context] struct {
	// Response returns the response of c.
	Response func(c C) Response
	// HandleError gives err to the application's own error handler.
	HandleError func(c C, err error)
	// SetResponse gives c a new response, which writes to w.
	SetResponse func(c C, w http.ResponseWriter)
}

// Context is what the contexts of all versions have.
type Context interface {
	Request() *http.Request
	SetRequest(r *http.Request)
	Get(key string) any
	Set(key string, value any)
}

// Response is an echo.Response and its fields.
type Response struct {
	http.ResponseWriter
	Writer    *http.ResponseWriter
	Status    *int
	Size      *int64
	Committed *bool
}

// With calls next with r as the request of c, and then gives c its own request back, also after a panic.
func (*Kit[C]) With(c C, r *http.Request, next func(C) error) error {
	defer giveBack(c, c.Request(), r, r.Context())
	c.SetRequest(r)
	return next(c)
}

func giveBack(c Context, original, lent *http.Request, ctx context.Context) {
	adapterkit.Adopt(original, lent, c.Request(), ctx)
	c.SetRequest(original)
}

// Finish is the middleware Finish.
func (e *Kit[C]) Finish(c C, next func(C) error) (err error) {
	f := new(adapterkit.Finisher)
	c.Set(finisherKey, f)
	counted := adapterkit.CountBody(c.Request())
	defer giveBack(c, c.Request(), counted, counted.Context())
	c.SetRequest(counted)
	returned, rendered := false, false
	defer func() {
		ferr := f.Finish(returned)
		if rendered {
			e.seal(c, e.Response(c))
		}
		err = cmp.Or(err, ferr)
	}()
	if err = next(c); err != nil && f.Deferred() {
		if !*e.Response(c).Committed { // by a logger in between, say
			e.HandleError(c, err)
		}
		rendered = *e.Response(c).Committed
	}
	returned = true
	return err
}

const finisherKey = "github.com/idem-go/idem/adapterkit.Finish"

// seal gives c a response that has been sent, and ignores writes: error handlers that do not look at
// Committed would write a second answer after the first one.
func (e *Kit[C]) seal(c C, sent Response) {
	w := &sealedWriter{ResponseWriter: *sent.Writer}
	e.SetResponse(c, w)
	sealed := e.Response(c)
	w.size = sealed.Size
	*sealed.Status, *sealed.Size, *sealed.Committed = *sent.Status, *sent.Size, true
}

// isSealed reports whether a guard further in has rendered the error already.
func (e *Kit[C]) isSealed(c C) bool {
	_, sealed := (*e.Response(c).Writer).(*sealedWriter)
	return sealed
}

// sealedWriter ignores writes. They do not count for the size of the response either.
type sealedWriter struct {
	http.ResponseWriter
	size *int64
}

func (*sealedWriter) WriteHeader(int)               {}
func (w *sealedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *sealedWriter) Write(b []byte) (int, error) {
	*w.size -= int64(len(b))
	return len(b), nil
}

// Exchange is an [adapterkit.Exchange] on Echo. An adapter embeds it, and adds the route in Describe, and the errors of
// Echo's BodyLimit in ReadBody.
type Exchange[C Context] struct {
	adapterkit.Exchange
	Context  C
	Response Response
	echo     *Kit[C]
	next     func(C) error
	status   int          // from before the handler
	direct   answerWriter // for Answer
	renders  bool         // no Finish is mounted: the guard renders the error
	rendered bool         // and has
}

// Start begins with the request of c. f is the adapter's exchange, which embeds x.
func (x *Exchange[C]) Start(f adapterkit.Framework, e *Kit[C], c C) {
	x.Exchange.Start(f, c.Request())
	x.echo, x.Context, x.Response = e, c, e.Response(c)
	x.status = *x.Response.Status
}

// Serve has g run next. f is the adapter's exchange, which embeds x.
func (x *Exchange[C]) Serve(f adapter.Exchange, g *core.Guard, next func(C) error) error {
	x.next = next
	err := g.Serve(x.Context.Request().Context(), f)
	if x.rendered {
		x.echo.seal(x.Context, x.Response)
	}
	return err
}

// Param makes a path parameter of what Echo has found: the value as it was sent, or decoded.
func (x *Exchange[C]) Param(name, value string, raw bool) adapter.Pair {
	switch {
	case name == "*" && raw:
		value = adapterkit.Rest(value)
	case name == "*":
		if tail, ok := adapterkit.Tail(adapterkit.EscapedPath(x.Context.Request().URL), value); ok {
			value = adapterkit.Rest(tail)
		}
	case raw:
		value = adapterkit.Unescape(value)
	}
	return adapter.Pair{Name: name, Value: value}
}

// Answer implements the method of [adapter.Exchange].
func (x *Exchange[C]) Answer(r *adapter.Response) error {
	x.Undo()
	w := x.Response.Writer
	x.direct = answerWriter{*w, r}
	*w = &x.direct
	defer func() {
		if *w == &x.direct {
			*w = x.direct.ResponseWriter
		}
	}()
	x.Response.WriteHeader(r.Status)
	if len(r.Body) == 0 {
		return nil
	}
	_, err := x.Response.Write(r.Body)
	return err
}

// answerWriter sets the header of an answer after Echo's Before hooks have run: what they add is in the
// answer already.
type answerWriter struct {
	http.ResponseWriter
	answer *adapter.Response
}

func (w *answerWriter) WriteHeader(status int) {
	adapterkit.SetHeader(w.Header(), w.answer)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Writer implements the method of [adapterkit.Framework].
func (x *Exchange[C]) Writer() http.ResponseWriter { return *x.Response.Writer }

// SetWriter implements the method of [adapterkit.Framework].
func (x *Exchange[C]) SetWriter(w http.ResponseWriter) { *x.Response.Writer = w }

// Next implements the method of [adapterkit.Framework]. The error of the handler is rendered here unless there is a Finish.
func (x *Exchange[C]) Next(r *http.Request) error {
	c := x.Context
	defer giveBack(c, c.Request(), r, r.Context())
	c.SetRequest(r)
	err := x.next(c)
	if err != nil && x.renders {
		if !x.echo.isSealed(c) {
			x.echo.HandleError(c, err)
		}
		x.rendered = *x.echo.Response(c).Committed
	}
	return err
}

// Finisher implements the method of [adapterkit.Framework].
func (x *Exchange[C]) Finisher() *adapterkit.Finisher {
	f, _ := x.Context.Get(finisherKey).(*adapterkit.Finisher)
	x.renders = f == nil
	return f
}

// Reported implements the method of [adapterkit.Framework].
func (x *Exchange[C]) Reported() (err error, rendered bool) {
	err, _ = x.Exchange.Reported()
	return err, x.renders
}

// Committed implements the method of [adapterkit.Framework].
func (x *Exchange[C]) Committed() bool { return *x.Response.Committed }

// Forget implements the method of [adapterkit.Framework].
func (x *Exchange[C]) Forget() {
	*x.Response.Status, *x.Response.Size, *x.Response.Committed = x.status, 0, false
}
