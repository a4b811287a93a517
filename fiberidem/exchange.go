package fiberidem

import (
	"context"
	"io"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// exchange is one request and its response. Its strings share fasthttp's memory, which
// is reused after the handler: none may outlive Serve. Exchanges are pooled.
type exchange struct {
	c        *fiber.Ctx
	place    *place
	resp     core.Response            // the capture
	before   *fasthttp.ResponseHeader // from before the handler, once it has run
	fields   []core.Field             // of before
	addr     []byte                   // the text of the remote address
	ran      bool
	finisher *finisher    // nil: no Finish is mounted, or nothing is left to it
	stream   *core.Stream // that fasthttp will write; nil: none
	pending  bool         // the finisher or the stream will complete it
	timedOut bool         // a timeout has answered, and the handler may run on
}

var exchanges = sync.Pool{New: func() any { return &exchange{before: new(fasthttp.ResponseHeader)} }}

func (x *exchange) reset() {
	header, fields, addr, before := x.resp.Header, x.fields, x.addr, x.before
	clear(header[:cap(header)])
	clear(fields[:cap(fields)])
	clear(addr[:cap(addr)])
	before.Reset()
	*x = exchange{before: before, fields: fields[:0], addr: addr[:0]}
	x.resp.Header = header[:0]
}

func (x *exchange) Describe(r *core.Request) {
	c, uri := x.c, x.c.Context().URI()
	r.Method = c.Method()
	r.Route = x.place.route
	if r.Route == "" {
		r.Route, r.Unmatched, r.Mount = utils.UnsafeString(uri.PathOriginal()), true, x.place.mount
	}
	for _, p := range x.place.params {
		value, ok := x.place.unescape(c.Params(p.fiberName))
		if !ok {
			// A bad escape has no value, and "100%" must not pass for "100%25".
			r.Route, r.PathParams = utils.UnsafeString(uri.PathOriginal()), r.PathParams[:0]
			r.Unmatched, r.Mount = true, x.place.route
			break
		}
		r.PathParams = append(r.PathParams, core.Pair{Name: p.name, Value: value})
	}
	r.RawQuery = utils.UnsafeString(uri.QueryString())
	r.ContentType = utils.UnsafeString(c.Request().Header.ContentType())
	r.ContentEncoding, _ = x.Header(fiber.HeaderContentEncoding, 0)
	r.Host = utils.UnsafeString(uri.Host()) // fasthttp has made it lower case
	r.RemoteAddr = x.remoteAddr()
	r.Preforked = x.place.preforked
	r.Native = c
}

// remoteAddr is RemoteAddr().String() without its allocations.
func (x *exchange) remoteAddr() string {
	addr := x.c.Context().RemoteAddr()
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || len(tcp.IP) == 0 {
		return addr.String()
	}
	at := tcp.AddrPort()
	x.addr = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).AppendTo(x.addr[:0])
	return utils.UnsafeString(x.addr)
}

func (x *exchange) Header(name string, i int) (value string, lines int) {
	h := &x.c.Request().Header
	if name == fiber.HeaderHost { // a target in absolute form overrides the field
		host := x.c.Context().URI().Host()
		if len(host) == 0 || i > 0 {
			return "", min(len(host), 1)
		}
		return utils.UnsafeString(host), 1
	}
	if !x.place.namesAsSent {
		if isListed(name) && !slices.ContainsFunc(h.PeekKeys(), func(k []byte) bool {
			return len(k) == len(name) && strings.EqualFold(utils.UnsafeString(k), name)
		}) {
			return "", 0 // as most of those that are asked for: PeekAll would first copy the name
		}
		values := h.PeekAll(name)
		if i >= len(values) {
			return "", len(values)
		}
		return utils.UnsafeString(values[i]), len(values)
	}
	h.VisitAll(func(k, v []byte) {
		if strings.EqualFold(utils.UnsafeString(k), name) {
			if lines == i {
				value = utils.UnsafeString(v)
			}
			lines++
		}
	})
	return value, lines
}

// isListed reports whether fasthttp keeps fields of that name in the list that PeekKeys shows, in all its versions.
func isListed(name string) bool {
	switch name {
	case fiber.HeaderContentType, fiber.HeaderContentLength, fiber.HeaderUserAgent, fiber.HeaderConnection, fiber.HeaderCookie, fiber.HeaderTrailer:
		return false
	}
	return true
}

func (x *exchange) ReadBody(limit int64) ([]byte, error) { return readBody(x.c.Request(), limit) }

func (x *exchange) Answer(r *core.Response) error {
	if x.ran { // the answer stands in place of the handler's
		x.before.CopyTo(&x.c.Response().Header)
	}
	answer(x.c, r)
	return nil
}

func answer(c *fiber.Ctx, r *core.Response) {
	resp := c.Response()
	if hasUnread(c.Request()) {
		resp.SetConnectionClose() // else fasthttp takes the unread rest for a request
		drain(c.Context())
	}
	resp.SetStatusCode(r.Status)
	for _, f := range r.Header {
		resp.Header.Del(f.Name)
	}
	for _, f := range r.Header {
		resp.Header.Add(f.Name, f.Value)
	}
	if r.Get(fiber.HeaderContentType) == "" {
		resp.Header.SetNoDefaultContentType(true) // for this response; the server sets it anew
	}
	resp.SetBody(r.Body)
}

func (x *exchange) Pass() error { return x.c.Next() }

func (x *exchange) Run(ctx context.Context, limit int) (core.Capture, error) {
	x.c.Response().Header.CopyTo(x.before)
	x.ran = true
	returned := false
	defer func() {
		if !returned { // a panic or runtime.Goexit, which goes on
			x.drop()
		}
	}()
	err := x.next(ctx)
	x.timedOut = x.place.timeout && err == fiber.ErrRequestTimeout
	returned = true
	if err != nil {
		if x.finisher = finisherOf(x.c); x.finisher != nil {
			return core.Capture{Deferred: true, Err: err}, err
		}
		render(x.c, err)
	}
	captured := x.capture(limit)
	captured.Err = err
	if x.stream = watch(x.c, captured); x.stream != nil {
		core.PartSent(ctx, false)
		return core.Capture{Deferred: true}, nil
	}
	return captured, nil
}

func (x *exchange) capture(limit int) core.Capture {
	captured := capture(x.c, &x.resp, limit, x.place.limited)
	appendFields(&x.fields, x.before)
	x.resp.Header = adapterkit.Changed(x.resp.Header, x.fields)
	captured.RunsOn = captured.RunsOn || x.timedOut
	return captured
}

// drop drops an answer with its header fields, which must not describe the answer of the recovery.
func (x *exchange) drop() {
	resp := x.c.Response()
	if isBlank(resp) {
		return
	}
	resp.ResetBody()
	x.before.CopyTo(&resp.Header)
}

// isBlank reports whether nothing has been answered. In Fiber, that is the same as 200 without a body.
func isBlank(resp *fasthttp.Response) bool {
	return resp.StatusCode() == fiber.StatusOK && !resp.IsBodyStream() && len(resp.Body()) == 0
}

func (x *exchange) next(ctx context.Context) error {
	outer := x.c.UserContext()
	x.c.SetUserContext(ctx)
	defer x.c.SetUserContext(outer)
	return x.c.Next()
}

// Deliver only adds fields: fasthttp sends the response after the chain of handlers.
func (x *exchange) Deliver(fields []core.Field) error {
	if x.stream != nil {
		return nil // the stream has ended, and the context may belong to another request
	}
	for _, f := range fields {
		x.c.Response().Header.Set(f.Name, f.Value)
	}
	return nil
}

// Defer implements [core.Deferrer]: the run ends in [Finish], or with the stream.
func (x *exchange) Defer(p *core.Pending) {
	x.pending = true
	if x.stream != nil {
		x.stream.Defer(p)
		return
	}
	x.finisher.Defer(p, x.final)
}

// final is the capture of what has become of the handler's error; nil after a panic.
func (x *exchange) final(returned bool) *core.Capture {
	if !returned {
		return nil
	}
	captured := x.capture(math.MaxInt) // the engine knows the limit
	captured.Err = x.finisher.err
	return &captured
}

// render makes a response of err, as Fiber does at the end of the chain.
func render(c *fiber.Ctx, err error) {
	if c.App().ErrorHandler(c, err) != nil {
		_ = c.SendStatus(fiber.StatusInternalServerError) // always nil
	}
}

// capture fills in r with the response that fasthttp is going to send. If the application is limited by
// fasthttp's own timeout, that may send another one meanwhile; the handler's counts.
func capture(c *fiber.Ctx, r *core.Response, limit int, limited bool) core.Capture {
	resp := c.Response()
	if !limited {
		if late := c.Context().LastTimeoutErrorResponse(); late != nil && !isLimited() {
			resp = late // sent in place of the other one, which a handler may still use
		}
	}
	captured := core.Capture{Response: r, RunsOn: resp != c.Response()}
	r.Status = resp.StatusCode()
	captured.Empty = isBlank(resp) && !c.Context().Hijacked()
	switch {
	case resp.IsBodyStream() || c.Context().Hijacked():
		captured.Incomplete = true // Body would read the stream to its end
	case resp.SkipBody || !adapterkit.BodyAllowed(r.Status):
		// fasthttp sends no body.
	case len(resp.Body()) > limit:
		r.Body, captured.Incomplete = resp.Body()[:limit], true
	default:
		r.Body = resp.Body()
		// A response that is proxied has the length that the backend has promised.
		length := resp.Header.ContentLength()
		captured.Incomplete = length > 0 && length != len(r.Body)
	}

	if h := &resp.Header; len(r.Body) == 0 && len(h.ContentType()) > 0 {
		// fasthttp lists its default Content-Type always, and does not send it without a body.
		h.SetNoDefaultContentType(true)
		defer h.SetNoDefaultContentType(false)
	}
	appendFields(&r.Header, &resp.Header)
	slices.SortStableFunc(r.Header, func(a, b core.Field) int { return strings.Compare(a.Name, b.Name) })
	return captured
}

// appendFields appends the fields of h, in its memory.
func appendFields(fields *[]core.Field, h *fasthttp.ResponseHeader) {
	h.VisitAll(func(k, v []byte) {
		*fields = append(*fields, core.Field{Name: utils.UnsafeString(k), Value: utils.UnsafeString(v)})
	})
}

// watch wraps the stream of the response, if it has one that will be written. fasthttp reads and closes it after
// the chain of handlers has returned. A stream writer that panics ends the process: fasthttp runs it in a
// goroutine without recovery.
func watch(c *fiber.Ctx, captured core.Capture) *core.Stream {
	resp := c.Response()
	if !resp.IsBodyStream() || resp.SkipBody || !adapterkit.BodyAllowed(resp.StatusCode()) ||
		c.Context().Hijacked() || c.Context().LastTimeoutErrorResponse() != nil {
		return nil
	}
	length := int64(resp.Header.ContentLength())
	if limited, ok := resp.BodyStream().(*io.LimitedReader); ok && length < 0 {
		length = limited.N // as fasthttp does
	}
	s := core.NewStream(resp.BodyStream(), length, captured)
	replaceStream(resp, s, int(length))
	return s
}

// replaceStream sets resp's stream without closing the one that is there, for which fasthttp has no
// call: the whole response is moved away, and all but the stream is put back.
func replaceStream(resp *fasthttp.Response, s io.Reader, size int) {
	var moved fasthttp.Response
	place := reflect.ValueOf(resp).Elem()
	reflect.ValueOf(&moved).Elem().Set(place)
	place.SetZero()
	reflect.ValueOf(&resp.Header).Elem().Set(reflect.ValueOf(&moved.Header).Elem())
	resp.ImmediateHeaderFlush = moved.ImmediateHeaderFlush // SkipBody is not set, see watch
	resp.SetBodyStream(s, size)
}
