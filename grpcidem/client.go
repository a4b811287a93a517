package grpcidem

import (
	"context"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	codec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/adapterkit/rpckit"
)

// Client returns a client interceptor that gives each unary call a key of its own, in the metadata idempotency-key, unless the caller
// has set one. All tries of the call have the same key. Methods that are declared to have no side effects get none.
//
// retry are the codes after which the interceptor retries, five times at most, with growing waits, and within the call's deadline. It
// obeys grpc-retry-pushback-ms. All tries send the same bytes, unless the caller forces a codec of its own ([grpc.ForceCodec]).
// Without codes, only the retry policy of the channel's service config retries; it repeats a call below the interceptors.
// Mount it outside of interceptors that repeat calls: inside, each try would be another operation.
func Client(retry ...grpccodes.Code) grpc.UnaryClientInterceptor {
	again := make([]uint32, len(retry))
	for i, code := range retry {
		again[i] = uint32(code)
	}
	return func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) (err error) {
		if md, _ := metadata.FromOutgoingContext(ctx); len(md[rpckit.KeyName]) == 0 && !describe(method, KeySource{}).Safe {
			ctx = metadata.AppendToOutgoingContext(ctx, rpckit.KeyName, rpckit.NewKey())
		}
		opts = opts[:len(opts):len(opts)]
		if len(again) > 0 {
			opts = sameBytes(opts)
		}
		rpckit.Retry(ctx, again, func() (uint32, []string) {
			var trailer metadata.MD
			err = invoke(ctx, method, request, reply, cc, append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer))...)
			return uint32(status.Code(err)), trailer[rpckit.Pushback]
		})
		return err
	}
}

// sameBytes makes all tries of a call send the same bytes: Protobuf's own codec marshals a map in another order each time, which a
// server that does not know the field would take for another request.
func sameBytes(opts []grpc.CallOption) []grpc.CallOption {
	var subtype string
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption, grpc.CustomCodecCallOption:
			return opts
		case grpc.ContentSubtypeCallOption:
			subtype = o.ContentSubtype
		}
	}
	if c := encoding.GetCodecV2(codec.Name); c != nil && (subtype == "" || subtype == codec.Name) {
		return append(opts, grpc.ForceCodecV2(stable{c, subtype}))
	}
	return opts
}

// stable is a codec that marshals equal messages to the same bytes.
type stable struct {
	encoding.CodecV2
	subtype string
}

// Name implements [encoding.CodecV2]. The content type stays as it is without the codec.
func (s stable) Name() string { return s.subtype }

// Marshal implements [encoding.CodecV2].
func (s stable) Marshal(v any) (mem.BufferSlice, error) {
	m := message(v)
	if m == nil {
		return s.CodecV2.Marshal(v)
	}
	b, err := deterministic.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}
