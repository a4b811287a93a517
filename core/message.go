package core

import (
	"context"
	"slices"
	"strings"

	"github.com/idem-go/idem/core/adapter"
)

// Request is one HTTP request, as hooks and key sources see it.
type Request = adapter.Request

// Response is an HTTP response: captured from a handler, replayed, or written in place of the handler's.
type Response = adapter.Response

// Field is one header field line of a [Response].
type Field = adapter.Field

// fill fills in all of r but the body.
func fill(ctx context.Context, r *Request, x adapter.Exchange) {
	x.Describe(r)
	r.Headers = x
	r.Caller, r.CallerEvent, r.Consumed = callerFrom(ctx)
}

// endpoint is a copy of what events call the route of r.
func endpoint(r *Request) string {
	pattern := r.Route
	if r.Unmatched {
		pattern = r.Mount
	}
	return r.Method + " " + pattern
}

// setField replaces the fields called name by one.
func setField(r *Response, name, value string) {
	r.Header = slices.DeleteFunc(r.Header, func(f Field) bool { return strings.EqualFold(f.Name, name) })
	r.Header = append(r.Header, Field{Name: name, Value: value})
}
