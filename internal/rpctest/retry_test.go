package rpctest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/grpcidem"
	"github.com/idem-go/idem/idemtest"
)

// retryPolicy is what operators give to channels.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "0.1s",
	"backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE", "FAILED_PRECONDITION"]}}]}`

// A stock client, whose retry policy is in its service config, waits as the server says, gets the replay, and stops where the
// server says so. The connection is in memory, and the clock is the test's.
func TestStockRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := idemtest.New(t, core.Config{})
		var tries atomic.Int64
		c := config{before: func(context.Context) { tries.Add(1) }}
		s, _ := newGRPC(t, engine.Engine, c, func(c *served) (*pb.ErrorInfo, *failure) {
			time.Sleep(1500 * time.Millisecond)
			return &pb.ErrorInfo{Reason: "done"}, nil
		})
		l := bufconn.Listen(1 << 20)
		go func() { _ = s.Serve(l) }()
		defer s.Stop()
		call := dial(t, "", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
			grpc.WithDefaultServiceConfig(retryPolicy), grpc.WithUnaryInterceptor(grpcidem.Client()))
		ask := func(text string) *answer {
			return call(t.Context(), order, &pb.ErrorInfo{Domain: text}, metadata.Pairs("x-user", "ann", "idempotency-key", "k-1"))
		}

		first := make(chan *answer, 1)
		go func() { first <- ask("a book") }()
		synctest.Wait()
		began := time.Now()
		a := ask("a book")
		require.NoError(t, a.err)
		require.True(t, a.replayed())
		require.Equal(t, 2*time.Second, time.Since(began), "it has waited twice for a second")
		require.EqualValues(t, 1+3, tries.Swap(0))
		require.False(t, (<-first).replayed())

		require.Equal(t, codes.FailedPrecondition, ask("a pen").code)
		require.EqualValues(t, 1, tries.Swap(0), "other parameters: another try makes no sense, whatever the policy says")

		engine.Fail(idemtest.Acquire)
		require.Equal(t, codes.Unavailable, ask("a book").code)
		require.EqualValues(t, 4, tries.Swap(0), "the store is down: the client's own backoff")
		engine.Fail()

		// Without a key of the caller's the tries of one call have one all the same.
		a = call(t.Context(), order, new(pb.ErrorInfo), metadata.Pairs("x-user", "ann"))
		require.NoError(t, a.err)
		engine.WantRuns("DO "+order, 2)
	})
}

// connect-go can't send what gRPC calls Trailers-Only, and a stock client repeats a call after nothing else. If this fails, the pages
// that say so are wrong.
func TestStockClientsDoNotRetryWithConnect(t *testing.T) {
	var tries atomic.Int64
	engine := idemtest.New(t, core.Config{})
	engine.Fail(idemtest.Acquire)
	addr, _ := connectServer(t, engine.Engine, config{before: func(context.Context) { tries.Add(1) }}, echo())
	call := dial(t, addr, grpc.WithDefaultServiceConfig(retryPolicy))
	a := call(t.Context(), order, new(pb.ErrorInfo), metadata.Pairs("x-user", "ann", "idempotency-key", "k-1"))
	require.Equal(t, codes.Unavailable, a.code)
	require.EqualValues(t, 1, tries.Load())
}
