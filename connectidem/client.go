package connectidem

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/idem-go/idem/adapterkit/rpckit"
)

// Client returns an interceptor for clients that gives each unary call a key of its own, in the header field Idempotency-Key, unless the
// caller has put one there. All tries of the call have the same key. Procedures that are declared to have no side effects get none.
//
// retry are the codes after which the interceptor tries again, five times at most, with growing waits, and within the call's
// deadline. It obeys grpc-retry-pushback-ms. Without codes it tries once. Mount it outside of interceptors that repeat
// calls: inside, each try would be another operation. Interceptors further in get a request that is no [connect.Request]: its Any is
// the message.
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
			rpckit.Retry(ctx, again, func() (uint32, []string) {
				if response, err = next(ctx, &try{request, header.Clone()}); err == nil {
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
	header http.Header
}

// Header implements [connect.AnyRequest].
func (t *try) Header() http.Header { return t.header }
