package fiberidem

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// New returns the handler that mounts g. It is safe for concurrent use and may be mounted
// on any number of routes and apps.
//
// Fiber holds whole bodies, which a middleware in front may read. With StreamRequestBody, mount it in
// front of middleware that reads the stream: a form that was read counts as it was parsed, and any other
// body is refused: 500 body_consumed.
func New(g *core.Guard) fiber.Handler {
	var places places
	preforked := fiber.IsChild()
	return func(c *fiber.Ctx) error {
		x := exchanges.Get().(*exchange)
		x.c, x.place, x.preforked = c, places.of(c), preforked
		err := g.Serve(c.UserContext(), x)
		if x.pending {
			return err // Finish has it
		}
		x.reset() // after a panic it stays out of the pool: somebody may still hold it
		exchanges.Put(x)
		return err
	}
}

// Run returns the run that a handler is part of, or nil, which answers like a first attempt. It
// may be kept after the handler.
func Run(c *fiber.Ctx) *core.Run { return core.RunFrom(c.UserContext()) }

// Replayed reports whether the response is a replay, for middleware further out. (Fiber's own
// idempotency middleware calls that IsFromCache.)
func Replayed(c *fiber.Ctx) bool {
	return string(c.Response().Header.Peek(core.ReplayedHeader)) == "true"
}

// UserFromLocals takes the user from c.Locals(key), where authentication middleware has
// left it; see [core.UserFromValue] for the types.
func UserFromLocals(key any) core.UserSource {
	return adapterkit.UserFrom("Fiber", func(c *fiber.Ctx) any { return c.Locals(key) })
}

// exchange is one request and its response. Its strings share fasthttp's memory, which
// is reused after the handler: none may outlive Serve.
type exchange struct {
	c         *fiber.Ctx
	place     *place
	resp      core.Response // the capture
	before    before        // the header from before the handler, once it has run
	addr      []byte        // the text of the remote address
	ran       bool
	finisher  *finisher // nil: no Finish is mounted, or nothing is left to it
	stream    *stream   // that fasthttp will write; nil: none
	pending   bool      // the finisher or the stream will complete it
	preforked bool      // this process is one of several
	timedOut  bool      // a timeout has answered, and the handler may run on
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (x *exchange) reset() {
	fields, addr, before := x.resp.Header, x.addr, x.before
	clear(fields[:cap(fields)])
	clear(addr[:cap(addr)])
	before.reset()
	*x = exchange{addr: addr[:0], before: before}
	x.resp.Header = fields[:0]
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
	r.Preforked = x.preforked
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
	ip := at.Addr().Unmap()
	if ip.Is4() {
		x.addr = ip.AppendTo(x.addr[:0])
		x.addr = append(x.addr, ':')
		x.addr = fasthttp.AppendUint(x.addr, int(at.Port()))
	} else {
		x.addr = at.AppendTo(x.addr[:0])
	}
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

func (x *exchange) ReadBody(limit int64) ([]byte, error) { return readBody(x.c.Request(), limit) }

// readBody returns the body as sent, and leaves it for others to read.
func readBody(req *fasthttp.Request, limit int64) ([]byte, error) {
	length := int64(req.Header.ContentLength()) // negative if it is not known
	if length > limit {
		return nil, core.ErrBodyTooLarge
	}
	if !req.IsBodyStream() {
		body := req.Body()
		// A form that was rebuilt may be longer than it was: its own length counts, if it is known.
		formOfKnownLength := length >= 0 && len(req.Header.MultipartFormBoundary()) > 0
		if int64(len(body)) > limit && !formOfKnownLength {
			return nil, core.ErrBodyTooLarge
		}
		return body, nil
	}
	if left, ok := req.BodyStream().(*buffered); ok { // by Verify, or by a guard further out
		if int64(len(left.all)) > limit {
			return nil, core.ErrBodyTooLarge
		}
		left.Reset(left.all) // a middleware in between may have read some of it
		return left.all, nil
	}
	// The memory is not pooled: a middleware further out may read the body after Serve.
	var body []byte
	var err error
	if isBegun(req.BodyStream()) {
		body, err = parsedForm(req)
	} else {
		body, err = readStream(req.BodyStream(), length, limit)
	}
	if err != nil {
		return nil, err
	}
	req.SetBodyStream(newBuffered(body), len(body))
	return body, nil
}

// hasUnread reports whether a part of the body may still be on the connection.
func hasUnread(req *fasthttp.Request) bool {
	if !req.IsBodyStream() {
		return false
	}
	switch req.BodyStream().(type) {
	case *buffered, *bytes.Reader:
		return false
	}
	return true
}

func (x *exchange) Answer(r *core.Response) error {
	if x.ran { // the answer stands in place of the handler's
		x.before.restore(&x.c.Response().Header)
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
	x.before.remember(&x.c.Response().Header)
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
	if x.stream = watch(ctx, x.c, &captured); x.stream != nil {
		core.PartSent(ctx, false)
		return core.Capture{Deferred: true}, nil
	}
	return captured, nil
}

func (x *exchange) capture(limit int) core.Capture {
	captured := capture(x.c, &x.resp, limit, x.place.limited)
	x.resp.Header = adapterkit.Changed(x.resp.Header, x.before.fields)
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
	resp.SetStatusCode(fiber.StatusOK)
	x.before.restore(&resp.Header)
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
		x.stream.claim = p
		return
	}
	x.finisher.Defer(p, x.final)
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

	typeImplied := len(r.Body) == 0 && impliesType(&resp.Header)
	resp.Header.VisitAll(func(k, v []byte) {
		name := utils.UnsafeString(k)
		if typeImplied && name == fiber.HeaderContentType {
			return
		}
		r.Header = append(r.Header, core.Field{Name: name, Value: utils.UnsafeString(v)})
	})
	slices.SortStableFunc(r.Header, func(a, b core.Field) int { return strings.Compare(a.Name, b.Name) })
	return captured
}

// impliesType reports whether the Content-Type is fasthttp's default one, which is listed
// always but not sent without a body. There is no other way to ask.
func impliesType(h *fasthttp.ResponseHeader) bool {
	if len(h.ContentType()) == 0 {
		return false
	}
	h.SetNoDefaultContentType(true)
	defer h.SetNoDefaultContentType(false)
	return len(h.ContentType()) == 0
}
