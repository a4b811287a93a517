package grpcidem

import (
	"context"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/adapterkit/rpckit"
)

// Client returns a client's interceptor that gives each unary call a key of its own, in the metadata idempotency-key, unless the
// caller has put one there. All tries of the call have the same key. Methods that are declared to have no side effects get none.
//
// retry are the codes after which the interceptor tries again, five times at most, with growing waits, and within the call's deadline. It
// obeys grpc-retry-pushback-ms. Without codes that is left to the service config of the channel, whose retry policy repeats a call
// below the interceptors. Mount it outside of interceptors that repeat calls: inside, each try would be another operation.
func Client(retry ...grpccodes.Code) grpc.UnaryClientInterceptor {
	again := make([]uint32, len(retry))
	for i, code := range retry {
		again[i] = uint32(code)
	}
	return func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
		if md, _ := metadata.FromOutgoingContext(ctx); len(md[rpckit.KeyName]) == 0 && !describe(method, KeySource{}).Safe {
			ctx = metadata.AppendToOutgoingContext(ctx, rpckit.KeyName, rpckit.NewKey())
		}
		rpckit.Retry(ctx, again, func() (uint32, []string) {
			var trailer metadata.MD
			err = invoke(ctx, method, request, reply, cc, append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer))...)
			return uint32(status.Code(err)), trailer[rpckit.Pushback]
		})
		return err
	}
}
