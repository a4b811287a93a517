package connectidem

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"

	"github.com/idem-go/idem/adapterkit/rpckit"
)

// Client returns an interceptor for clients that gives each unary call a key of its own, in the header field Idempotency-Key, unless the
// caller has put one there. All tries of the call have the same key. Procedures that are declared to have no side effects get none.
//
// retry are the codes after which the interceptor tries again, five times at most, with growing waits, and within the call's
// deadline. It obeys grpc-retry-pushback-ms, and all tries send the same bytes. Without codes it tries once. Mount it outside of
// interceptors that repeat calls: inside, each try would be another operation. Interceptors further in get a request that is no
// [connect.Request]. Its Any is the message; with codes it is a [proto.Message] with the same content, but of another Go type.
func Client(retry ...connect.Code) connect.Interceptor {
	again := make([]uint32, len(retry))
	for i, code := range retry {
		again[i] = uint32(code)
	}
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
			spec := request.Spec()
			if !spec.IsClient {
				return next(ctx, request)
			}
			header := request.Header().Clone() // the caller may send the request again, as another operation
			if len(header.Values(rpckit.KeyName)) == 0 && spec.IdempotencyLevel != connect.IdempotencyNoSideEffects {
				header.Set(rpckit.KeyName, rpckit.NewKey())
			}
			message := request.Any()
			if len(again) > 0 {
				message = sameBytes(message)
			}
			rpckit.Retry(ctx, again, func() (uint32, []string) {
				if response, err = next(ctx, &try{request, header.Clone(), message}); err == nil {
					return 0, nil
				}
				e, _ := asError(err)
				return uint32(e.Code()), e.Meta().Values(rpckit.Pushback)
			})
			return response, err
		}
	})
}

// try is one try of a request. Its header is its own: connect adds to it, and the transport may still read it when the try has ended.
type try struct {
	connect.AnyRequest
	header  http.Header
	message any
}

// Header implements [connect.AnyRequest].
func (t *try) Header() http.Header { return t.header }

// Any implements [connect.AnyRequest].
func (t *try) Any() any { return t.message }

// sameBytes makes all tries of a message be the same bytes: Protobuf marshals a map in another order each time, which a server that does
// not know the field would take for another request.
func sameBytes(request any) any {
	m, ok := request.(proto.Message)
	if !ok {
		return request
	}
	b, err := deterministic.Marshal(m)
	if err != nil {
		return request // of which connect reports what it is
	}
	return &marshalled{m.ProtoReflect(), b}
}

// marshalled is a message and its bytes in Protobuf's binary format. In JSON it is as any message.
type marshalled struct {
	protoreflect.Message
	bytes []byte
}

// ProtoReflect implements [proto.Message].
func (m *marshalled) ProtoReflect() protoreflect.Message { return m }

// ProtoMethods implements [protoreflect.Message].
func (m *marshalled) ProtoMethods() *protoiface.Methods {
	return &protoiface.Methods{
		Flags: protoiface.SupportMarshalDeterministic,
		Size:  func(protoiface.SizeInput) protoiface.SizeOutput { return protoiface.SizeOutput{Size: len(m.bytes)} },
		Marshal: func(in protoiface.MarshalInput) (protoiface.MarshalOutput, error) {
			return protoiface.MarshalOutput{Buf: append(in.Buf, m.bytes...)}, nil
		},
	}
}
