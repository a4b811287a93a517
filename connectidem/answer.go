package connectidem

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/idem-go/idem/adapterkit/rpckit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// asError returns the error that a handler's error is on the wire. own says that it was one already.
func asError(err error) (e *connect.Error, own bool) {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e, true
	}
	code := connect.CodeUnknown
	switch {
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, err), false
}

// outcome describes what a handler has returned.
func (g *Guard) outcome(ctx context.Context, response connect.AnyResponse, err error) rpckit.Outcome {
	if err == nil {
		return rpckit.Outcome{Answer: func() *rpckit.Answer {
			a, err := encode(response.Any(), nil)
			if err != nil {
				return nil
			}
			header, trailer := sent(ctx)
			a.Header, a.Trailer = g.stored(header, response.Header()), g.stored(trailer, response.Trailer())
			return a
		}}
	}
	e, own := asError(err)
	if own {
		err = &stripped{e} // a refusal that has become such an error is that error
	}
	answer := func() *rpckit.Answer {
		a, err := encode(nil, e)
		if err != nil {
			return nil
		}
		header, trailer := sent(ctx)
		meta := e.Meta()
		if connect.IsWireError(e) { // another server's, which connect does not pass on
			meta = nil
		}
		a.Header, a.Trailer = g.stored(header), g.stored(trailer, meta)
		return a
	}
	return rpckit.Outcome{Code: uint32(e.Code()), Err: err, Failed: g.config.Failed(e), Refused: Refused(e) != "", Answer: answer}
}

// stripped is an error without those that it wraps.
type stripped struct{ err error }

func (s *stripped) Error() string { return s.err.Error() }

// sent are the header and trailer that handlers and interceptors set by way of the context.
func sent(ctx context.Context) (header, trailer http.Header) {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return http.Header{}, http.Header{}
	}
	return info.ResponseHeader(), info.ResponseTrailer()
}

// stored returns what is stored of metadata: binary values as bytes.
func (g *Guard) stored(headers ...http.Header) map[string][]string {
	if !g.kit.StoresMetadata() {
		return nil
	}
	md := make(map[string][]string)
	for _, h := range headers {
		for name, values := range h {
			name = strings.ToLower(name)
			for _, value := range values {
				if strings.HasSuffix(name, "-bin") {
					raw, err := connect.DecodeBinaryHeader(value)
					if err != nil {
						continue // no client can read it
					}
					value = string(raw)
				}
				md[name] = append(md[name], value)
			}
		}
	}
	return g.kit.Stored(md)
}

// restore puts what is stored into h, in place of what outer interceptors have set under the same names.
func restore(h http.Header, md map[string][]string) {
	for name, values := range md {
		h.Del(name)
		for _, value := range values {
			if strings.HasSuffix(name, "-bin") {
				value = connect.EncodeBinaryHeader([]byte(value))
			}
			h.Add(name, value)
		}
	}
}

// replay answers with what is stored. It reports false if the program does not know the message.
func replay(ctx context.Context, a *rpckit.Answer) (_ connect.AnyResponse, err error, ok bool) {
	m, failed, ok := decode(a)
	if !ok {
		return nil, nil, false
	}
	header, trailer := sent(ctx)
	restore(header, a.Header)
	header.Set(rpckit.Replayed, "true")
	if failed != nil {
		restore(failed.Meta(), a.Trailer)
		return nil, failed, true
	}
	restore(trailer, a.Trailer)
	return &response{connect.NewResponse(new(emptypb.Empty)), m}, nil, true
}

// response is a response with a message whose type is known by its name only.
type response struct {
	connect.AnyResponse
	message any
}

// Any implements [connect.AnyResponse].
func (r *response) Any() any { return r.message }

// refuse returns the error for a refusal.
func refuse(r *core.Refusal) error {
	code, reason, pushback := rpckit.Status(r)
	e := connect.NewError(connect.Code(code), &refused{r})
	if d, err := connect.NewErrorDetail(&errdetails.ErrorInfo{Domain: rpckit.Domain, Reason: reason}); err == nil { // strings: can't fail
		e.AddDetail(d)
	}
	if pushback != "" {
		e.Meta().Set(rpckit.Pushback, pushback)
	}
	return e
}

// refused is behind the error of a refusal. Interceptors find the *[core.Refusal] in it. Its text is what the client gets.
type refused struct{ refusal *core.Refusal }

func (r *refused) Error() string { return r.refusal.Detail }
func (r *refused) Unwrap() error { return r.refusal }

// Refused returns the code of the refusal that err is, on the client's side and on the server's, or "" if it is none. It reads the
// google.rpc.ErrorInfo of the error, whose domain is "github.com/idem-go/idem" and whose reason is the code in capitals.
func Refused(err error) codes.Code {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return ""
	}
	for _, d := range e.Details() {
		if v, err := d.Value(); err == nil {
			if info, ok := v.(*errdetails.ErrorInfo); ok {
				if code := rpckit.Code(info.GetDomain(), info.GetReason()); code != "" {
					return code
				}
			}
		}
	}
	return ""
}
