package grpcidem

import (
	"context"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/adapterkit/rpckit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// outcome describes what a handler has returned. sent may be nil.
func (g *Guard) outcome(response any, err error, sent *recorder) rpckit.Outcome {
	var o rpckit.Outcome
	var s *status.Status
	if err != nil {
		var own bool
		if s, own = status.FromError(err); own {
			err = s.Err() // a refusal that has become a status is that status
		} else {
			s = status.FromContextError(err) // as the server does
		}
		o = rpckit.Outcome{Code: uint32(s.Code()), Err: err, Failed: g.config.Failed(s), Refused: Refused(err) != ""}
	}
	o.Answer = func() *rpckit.Answer {
		a, err := encode(response, s)
		if err != nil {
			return nil
		}
		if sent != nil {
			sent.mu.Lock()
			defer sent.mu.Unlock()
			a.Header, a.Trailer = g.kit.Stored(sent.header), g.kit.Stored(sent.trailer)
		}
		return a
	}
	return o
}

// recorder is the stream of a call that notes the metadata which its handler sets.
type recorder struct {
	grpc.ServerTransportStream
	mu              sync.Mutex
	header, trailer metadata.MD
}

// record gives the handler a recorder, if anything is to be recorded.
func (g *Guard) record(ctx context.Context) (context.Context, *recorder) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if stream == nil || !g.kit.StoresMetadata() {
		return ctx, nil
	}
	r := &recorder{ServerTransportStream: stream}
	return grpc.NewContextWithServerTransportStream(ctx, r), r
}

func (r *recorder) note(md metadata.MD, to *metadata.MD, err error) error {
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		*to = metadata.Join(*to, md)
	}
	return err
}

// SetHeader implements [grpc.ServerTransportStream].
func (r *recorder) SetHeader(md metadata.MD) error {
	return r.note(md, &r.header, r.ServerTransportStream.SetHeader(md))
}

// SendHeader implements [grpc.ServerTransportStream].
func (r *recorder) SendHeader(md metadata.MD) error {
	return r.note(md, &r.header, r.ServerTransportStream.SendHeader(md))
}

// SetTrailer implements [grpc.ServerTransportStream].
func (r *recorder) SetTrailer(md metadata.MD) error {
	return r.note(md, &r.trailer, r.ServerTransportStream.SetTrailer(md))
}

// mark sends the stored metadata, and that it is a replay. That fails if the client has gone, or if an outer interceptor has sent the
// header already: the answer is the same.
func mark(ctx context.Context, a *rpckit.Answer) {
	_ = grpc.SetHeader(ctx, metadata.Join(a.Header, metadata.Pairs(rpckit.Replayed, "true")))
	_ = grpc.SetTrailer(ctx, a.Trailer)
}

// refuse returns the error for a refusal. There is no header, so that the client's retry policy takes it into account.
func refuse(ctx context.Context, r *core.Refusal) error {
	code, reason, pushback := rpckit.Status(r)
	if pushback != "" {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(rpckit.Pushback, pushback)) // fails if the client has gone
	}
	s := status.New(grpccodes.Code(code), r.Detail)
	if detailed, err := s.WithDetails(&errdetails.ErrorInfo{Domain: rpckit.Domain, Reason: reason}); err == nil { // strings: can't fail
		s = detailed
	}
	return &refused{s, r}
}

// refused is the error of a refusal. Interceptors find the *[core.Refusal] in it. Its text is what the client gets.
type refused struct {
	status  *status.Status
	refusal *core.Refusal
}

func (r *refused) Error() string              { return r.status.String() }
func (r *refused) GRPCStatus() *status.Status { return r.status }
func (r *refused) Unwrap() error              { return r.refusal }

// Refused returns the code of the refusal that err is, on the client's side and on the server's, or "" if it is none. It reads the
// google.rpc.ErrorInfo of the status, whose domain is "github.com/idem-go/idem" and whose reason is the code in capitals.
func Refused(err error) codes.Code {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			if code := rpckit.Code(info.GetDomain(), info.GetReason()); code != "" {
				return code
			}
		}
	}
	return ""
}
