package connectidem_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/idem-go/idem/connectidem"
)

// A caller that sends one [connect.Request] twice means two operations: the interceptor leaves no key in it. The cases over connections
// are those of internal/rpctest.
func TestRequestSentAgain(t *testing.T) {
	var keys []string
	server := httptest.NewServer(connect.NewUnaryHandler(createOrder, func(_ context.Context, r *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		keys = append(keys, r.Header().Get("Idempotency-Key"))
		return connect.NewResponse(new(emptypb.Empty)), nil
	}))
	defer server.Close()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+createOrder, connect.WithInterceptors(connectidem.Client()))
	request := connect.NewRequest(new(emptypb.Empty))
	for range 2 {
		if _, err := client.CallUnary(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if keys[0] == "" || keys[0] == keys[1] {
		t.Errorf("the keys of two calls: %q", keys)
	}
}
