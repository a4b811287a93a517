package grpcidem_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	shop "google.golang.org/grpc/interop/grpc_testing" // stands for your generated code
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/grpcidem"
)

// orders is a service as it is without idem.
type orders struct {
	shop.UnimplementedTestServiceServer
}

func (orders) UnaryCall(_ context.Context, r *shop.SimpleRequest) (*shop.SimpleResponse, error) {
	if r.GetResponseSize() > 100 {
		return nil, status.Error(grpccodes.FailedPrecondition, "not so many")
	}
	fmt.Println("ordered", r.GetResponseSize())
	return &shop.SimpleResponse{Username: "order-17"}, nil
}

func Example() {
	engine := core.MustNew(core.Config{}) // with a Service, and a Store that all instances share
	guard := grpcidem.MustNew(engine, grpcidem.Config{
		User: func(ctx context.Context) (string, error) { return userOf(ctx) }, // whom your authentication has found
	})
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.Unary))
	shop.RegisterTestServiceServer(server, orders{})

	listener := bufconn.Listen(1 << 20) // in place of a network
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///shop", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	client := shop.NewTestServiceClient(conn)

	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", "ann", "idempotency-key", "k-1")
	for _, size := range []int32{5, 5, 700} { // an order, its retry, and another order under the same key
		var header metadata.MD
		response, err := client.UnaryCall(ctx, &shop.SimpleRequest{ResponseSize: size}, grpc.Header(&header))
		fmt.Printf("%v %q %q %q\n", status.Code(err), response.GetUsername(), header["idempotent-replayed"], grpcidem.Refused(err))
	}
	// Output:
	// ordered 5
	// OK "order-17" [] ""
	// OK "order-17" ["true"] ""
	// FailedPrecondition "" [] "key_reused"
}

// Each call gets a key of its own, and all its tries have that.
func ExampleClient() {
	const serviceConfig = `{"methodConfig": [{"name": [{"service": "grpc.testing.TestService"}], "retryPolicy": {
		"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "5s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	conn, err := grpc.NewClient("dns:///shop.example.com", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpcidem.Client()), grpc.WithDefaultServiceConfig(serviceConfig))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output: dns:///shop.example.com
}

func userOf(ctx context.Context) (string, error) {
	if users := metadata.ValueFromIncomingContext(ctx, "x-user"); len(users) == 1 {
		return users[0], nil
	}
	return "", errors.New("no user")
}

// The server of docs/rpc.md.
func _(store store.Store, recovery, auth grpc.UnaryServerInterceptor, userOf func(context.Context) (string, error),
	listener net.Listener) error {
	engine, err := core.New(core.Config{Service: "shop", Store: store}) // all instances share the store
	if err != nil {
		return err
	}
	guard, err := grpcidem.New(engine, grpcidem.Config{User: userOf}) // the user that auth found
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(recovery, auth, guard.Unary))
	shop.RegisterTestServiceServer(server, orders{})
	passing, err := guard.Passing(server) // streams, and methods that you left out
	if err != nil {
		return err
	}
	slog.Info("unprotected", "methods", passing)
	return server.Serve(listener)
}
