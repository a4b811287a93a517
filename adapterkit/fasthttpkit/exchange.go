package fasthttpkit

import (
	"bytes"
	"context"
	"math"
	"net"
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
)

// Exchange is an [adapter.Exchange] and a [adapter.Deferrer] on fasthttp. An adapter embeds it in an exchange of its own, which is the
// [Framework], and adds Pass, and a Describe that calls this one. Its strings share fasthttp's memory, which is reused after the
// handler: none may outlive [core.Guard.Serve]. The zero Exchange is ready for Start. It must not be used concurrently.
type Exchange struct {
	ctx       *fasthttp.RequestCtx
	framework Framework
	place     *Place
	resp      adapter.Response         // the capture
	before    *fasthttp.ResponseHeader // from before the handler, once it has run
	fields    []adapter.Field          // of before
	addr      []byte                   // the text of the remote address
	names     [][]byte                 // of the request's header, if listed is set
	listed    bool
	ran       bool
	finisher  *Finisher       // nil: no Finish is mounted, or nothing is left to it
	stream    *adapter.Stream // that fasthttp will write; nil: none
	pending   bool            // the finisher or the stream will settle the run
	runsOn    bool            // a timeout has answered, and the handler may run on
}

// Framework is what an [Exchange] asks of the adapter's own exchange, which embeds it.
type Framework interface {
	// Param returns the value of a path parameter, see [Param].Native.
	Param(name string) string
	// Next runs the handlers inside the guard with ctx as the context of the request, which then gets its own back, also
	// after a panic. runsOn reports that a timeout has answered in place of a handler that may run on.
	Next(ctx context.Context) (runsOn bool, err error)
	// Render makes a response of err, as the framework does at the end of its chain.
	Render(err error)
	// Finisher returns what the adapter's Finish has put into the request, or nil. It is called once, when Next has returned
	// an error.
	Finisher() *Finisher
}

// Finisher is a [adapter.Finisher] for the runs of an [Exchange]. An adapter's Finish puts a new one into the request, runs what is
// inside it, and then calls [adapter.Finisher.Finish].
type Finisher struct {
	adapter.Finisher
	Err error // that nobody had rendered before Finish
}

// Start begins with the request of ctx. f is the adapter's exchange, which embeds x.
func (x *Exchange) Start(f Framework, ctx *fasthttp.RequestCtx, p *Place) {
	x.framework, x.ctx, x.place = f, ctx, p
}

// End is called when [core.Guard.Serve] has returned, but not after a panic: somebody may still hold the exchange. It reports
// whether the exchange may be used again; if not, its run is still to be settled, further out.
func (x *Exchange) End() bool {
	if x.pending {
		return false
	}
	header, fields, addr, names, before := x.resp.Header, x.fields, x.addr, x.names, x.before
	clear(header[:cap(header)])
	clear(fields[:cap(fields)])
	clear(addr[:cap(addr)])
	clear(names[:cap(names)])
	if before != nil {
		before.Reset()
	}
	*x = Exchange{before: before, fields: fields[:0], addr: addr[:0], names: names[:0]}
	x.resp.Header = header[:0]
	return true
}

// Describe fills in r, all but Method, Preforked and Native.
func (x *Exchange) Describe(r *adapter.Request) {
	uri := x.ctx.URI()
	r.Route = x.place.Route
	if r.Route == "" {
		r.Route, r.Unmatched, r.Mount = text(uri.PathOriginal()), true, x.place.Mount
	}
	for _, p := range x.place.Params {
		value, ok := x.param(p)
		if !ok {
			// A bad escape has no value, and "100%" must not pass for "100%25".
			r.Route, r.PathParams = text(uri.PathOriginal()), r.PathParams[:0]
			r.Unmatched, r.Mount = true, x.place.Route
			break
		}
		r.PathParams = append(r.PathParams, adapter.Pair{Name: p.Name, Value: value})
	}
	r.RawQuery = text(uri.QueryString())
	r.ContentType = text(x.ctx.Request.Header.ContentType())
	r.ContentEncoding, _ = x.Header(fasthttp.HeaderContentEncoding, 0)
	r.Host = text(uri.Host()) // fasthttp has made it lower case
	r.RemoteAddr = x.remoteAddr()
}

// param returns the value of a path parameter. ok is false if it is no valid escape, or not what was sent.
func (x *Exchange) param(p Param) (value string, ok bool) {
	value = x.framework.Param(p.Native)
	if p.Name[0] != '*' {
		return x.place.unescape(value)
	}
	if x.place.Unescaped {
		path := text(x.ctx.URI().PathOriginal())
		tail, ok := adapterkit.Tail(path, value)
		if !ok { // without StrictRouting the last slashes are no part of it
			tail, ok = adapterkit.Tail(strings.TrimRight(path, "/"), value)
		}
		return adapterkit.Rest(tail), ok
	}
	return adapterkit.Rest(value), true
}

// remoteAddr is RemoteAddr().String() without its allocations.
func (x *Exchange) remoteAddr() string {
	addr := x.ctx.RemoteAddr()
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || len(tcp.IP) == 0 {
		return addr.String()
	}
	at := tcp.AddrPort()
	x.addr = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).AppendTo(x.addr[:0])
	return text(x.addr)
}

// Header implements [adapter.Headers].
func (x *Exchange) Header(name string, i int) (value string, lines int) {
	h := &x.ctx.Request.Header
	if name == fasthttp.HeaderHost { // a target in absolute form overrides the field
		host := x.ctx.URI().Host()
		if len(host) == 0 || i > 0 {
			return "", min(len(host), 1)
		}
		return text(host), 1
	}
	if !x.place.NamesAsSent {
		// Most of those that are asked for are absent. Newer versions keep apart what an announced trailer has brought.
		if !isSpecial(name) && !x.hasSent(name) && (!x.hasSent(fasthttp.HeaderTrailer) || len(h.Peek(name)) == 0) {
			return "", 0
		}
		values := h.PeekAll(name)
		if i >= len(values) {
			return "", len(values)
		}
		return text(values[i]), len(values)
	}
	if isChunked(h) {
		h = withTrailer(h)
	}
	h.VisitAll(func(k, v []byte) {
		if strings.EqualFold(text(k), name) {
			if lines == i {
				value = text(v)
			}
			lines++
		}
	})
	return value, lines
}

// isChunked reports whether a body was sent in chunks, also if it has been read: a trailer may have followed.
func isChunked(h *fasthttp.RequestHeader) bool {
	for line := range bytes.Lines(h.RawHeaders()) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		if strings.EqualFold(strings.TrimSpace(text(name)), fasthttp.HeaderTransferEncoding) {
			return true
		}
	}
	return false
}

// withTrailer returns a copy of h in which what a trailer has brought is among the fields: newer versions of fasthttp keep that
// apart as long as there is a Trailer.
func withTrailer(h *fasthttp.RequestHeader) *fasthttp.RequestHeader {
	all := new(fasthttp.RequestHeader)
	h.CopyTo(all)
	all.Del(fasthttp.HeaderTrailer)
	return all
}

// hasSent reports whether the request has a field called name. The names are listed once, because fasthttp walks the whole header
// for that; and again after what may have changed them.
func (x *Exchange) hasSent(name string) bool {
	if !x.listed || x.ran {
		x.names, x.listed = append(x.names[:0], x.ctx.Request.Header.PeekKeys()...), true
	}
	for _, k := range x.names {
		if len(k) == len(name) && strings.EqualFold(text(k), name) {
			return true
		}
	}
	return false
}

// ReadBody implements the method of [adapter.Exchange].
func (x *Exchange) ReadBody(limit int64) ([]byte, error) {
	if x.ctx.Request.IsBodyStream() {
		x.listed = false // a trailer adds to the names
	}
	return readBody(&x.ctx.Request, limit)
}

// Answer implements the method of [adapter.Exchange].
func (x *Exchange) Answer(r *adapter.Response) error {
	if x.ran { // the answer replaces the handler's
		x.before.CopyTo(&x.ctx.Response.Header)
	}
	answer(x.ctx, r)
	return nil
}

// Run implements the method of [adapter.Exchange].
func (x *Exchange) Run(ctx context.Context, limit int) (adapter.Capture, error) {
	if x.before == nil {
		x.before = new(fasthttp.ResponseHeader)
	}
	x.ctx.Response.Header.CopyTo(x.before)
	x.ran = true
	returned := false
	defer func() {
		if !returned { // a panic or runtime.Goexit, which goes on
			x.drop()
		}
	}()
	runsOn, err := x.framework.Next(ctx)
	x.runsOn, returned = runsOn, true
	if err != nil {
		if x.finisher = x.framework.Finisher(); x.finisher != nil {
			return adapter.Capture{Ending: adapter.Deferred, Err: err}, err
		}
		x.framework.Render(err)
	}
	captured := x.capture(limit)
	captured.Err = err
	if x.stream = watch(x.ctx, captured); x.stream != nil {
		adapter.PartSent(ctx, false)
		return adapter.Capture{Ending: adapter.Deferred}, nil
	}
	return captured, nil
}

func (x *Exchange) capture(limit int) adapter.Capture {
	captured := capture(x.ctx, &x.resp, limit, x.place.Limited)
	if len(x.before.ContentType()) > 0 { // it is listed if somebody has set it
		x.before.SetNoDefaultContentType(true)
		defer x.before.SetNoDefaultContentType(false)
	}
	appendFields(&x.fields, x.before)
	x.resp.Removed = adapterkit.Removed(x.resp.Header, x.fields)
	x.resp.Header = adapterkit.Changed(x.resp.Header, x.fields)
	if x.runsOn {
		captured.Ending = adapter.RunsOn
	}
	return captured
}

// drop drops an answer with its header fields, which must not describe the answer of the recovery.
func (x *Exchange) drop() {
	resp := &x.ctx.Response
	if isBlank(resp) {
		return
	}
	resp.ResetBody()
	x.before.CopyTo(&resp.Header)
}

// Deliver implements the method of [adapter.Exchange]. It only adds fields: fasthttp sends the response after the chain of handlers.
func (x *Exchange) Deliver(fields []adapter.Field) error {
	if x.stream != nil {
		return nil // the stream has ended, and the context may belong to another request
	}
	for _, f := range fields {
		x.ctx.Response.Header.Set(f.Name, f.Value)
	}
	return nil
}

// Defer implements [adapter.Deferrer]: the run ends in the adapter's Finish, or with the stream.
func (x *Exchange) Defer(p adapter.Pending) {
	x.pending = true
	if x.stream != nil {
		x.stream.Defer(p)
		return
	}
	x.finisher.Defer(p, x.final)
}

// final is the capture of what has become of the handler's error; nil after a panic.
func (x *Exchange) final(returned bool) *adapter.Capture {
	if !returned {
		return nil
	}
	captured := x.capture(math.MaxInt) // the engine knows the limit
	captured.Err = x.finisher.Err
	return &captured
}
