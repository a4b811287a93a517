package fasthttpkit

import (
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// answer makes r the response of ctx.
func answer(ctx *fasthttp.RequestCtx, r *adapter.Response) {
	resp := &ctx.Response
	if hasUnread(&ctx.Request) {
		resp.SetConnectionClose() // else fasthttp takes the unread rest for a request
		drain(ctx)
	}
	resp.SetStatusCode(r.Status)
	for _, name := range r.Removed {
		resp.Header.Del(name)
	}
	for _, f := range r.Header {
		resp.Header.Del(f.Name)
	}
	for _, f := range r.Header {
		resp.Header.Add(f.Name, f.Value)
	}
	if r.Get(fasthttp.HeaderContentType) == "" {
		resp.Header.SetNoDefaultContentType(true) // for this response; the server sets it anew
	}
	resp.SetBody(r.Body)
}

// Replayed reports whether the response of ctx is a replay.
func Replayed(ctx *fasthttp.RequestCtx) bool {
	return string(ctx.Response.Header.Peek(core.ReplayedHeader)) == "true"
}

// isBlank reports whether nothing has been answered. In fasthttp, that is the same as 200 without a body.
func isBlank(resp *fasthttp.Response) bool {
	return resp.StatusCode() == fasthttp.StatusOK && !resp.IsBodyStream() && len(resp.Body()) == 0
}

// capture fills in r with the response that fasthttp is going to send. If the application is limited by
// an outer timeout, that may send another one meanwhile; the handler's counts.
func capture(ctx *fasthttp.RequestCtx, r *adapter.Response, limit int, limited bool) adapter.Capture {
	resp := &ctx.Response
	if !limited {
		if late := ctx.LastTimeoutErrorResponse(); late != nil && !IsLimited() {
			resp = late // sent in place of the other one, which a handler may still use
		}
	}
	captured := adapter.Capture{Response: r}
	switch {
	case resp != &ctx.Response:
		captured.Ending = adapter.RunsOn
	case isBlank(resp) && !ctx.Hijacked():
		captured.Ending = adapter.Empty
	}
	r.Status = resp.StatusCode()
	switch {
	case resp.IsBodyStream() || ctx.Hijacked():
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
	slices.SortStableFunc(r.Header, func(a, b adapter.Field) int { return strings.Compare(a.Name, b.Name) })
	return captured
}

// appendFields appends the fields of h, in its memory.
func appendFields(fields *[]adapter.Field, h *fasthttp.ResponseHeader) {
	h.VisitAll(func(k, v []byte) {
		*fields = append(*fields, adapter.Field{Name: text(k), Value: text(v)})
	})
}

// watch wraps the stream of the response, if it has one that will be written. fasthttp reads and closes it after
// the chain of handlers has returned. A stream writer that panics ends the process: fasthttp runs it in a
// goroutine without recovery.
func watch(ctx *fasthttp.RequestCtx, captured adapter.Capture) *adapter.Stream {
	resp := &ctx.Response
	if !resp.IsBodyStream() || resp.SkipBody || !adapterkit.BodyAllowed(resp.StatusCode()) ||
		ctx.Hijacked() || ctx.LastTimeoutErrorResponse() != nil {
		return nil
	}
	length := int64(resp.Header.ContentLength())
	if limited, ok := resp.BodyStream().(*io.LimitedReader); ok && length < 0 {
		length = limited.N // as fasthttp does
	}
	s := adapter.NewStream(resp.BodyStream(), length, captured)
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
