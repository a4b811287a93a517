package connectidem_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/idem-go/idem/connectidem"
	"github.com/idem-go/idem/core"
)

// A caller that sends one [connect.Request] twice means two operations: the interceptor leaves no key in it. The cases over connections
// are those of internal/rpctest.
func TestRequestSentAgain(t *testing.T) {
	var keys []string
	handler := func(_ context.Context, r *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		keys = append(keys, r.Header().Get("Idempotency-Key"))
		return connect.NewResponse(new(emptypb.Empty)), nil
	}
	server := httptest.NewServer(connect.NewUnaryHandler(createOrder, handler))
	defer server.Close()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+createOrder,
		connect.WithInterceptors(connectidem.Client()))
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

// An interceptor that is mounted on the other side lets calls pass.
func TestOnTheOtherSide(t *testing.T) {
	guard := connectidem.MustNew(core.MustNew(core.Config{}), connectidem.Config{SharedByAllCallers: true})
	var keys []string
	handler := func(_ context.Context, r *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		keys = append(keys, r.Header().Get("Idempotency-Key"))
		return connect.NewResponse(new(emptypb.Empty)), nil
	}
	server := httptest.NewServer(connect.NewUnaryHandler(createOrder, handler, connect.WithInterceptors(connectidem.Client())))
	defer server.Close()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+createOrder, connect.WithInterceptors(guard))
	if _, err := client.CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty))); err != nil || len(keys) != 1 || keys[0] != "" {
		t.Errorf("%v; the keys of the calls: %q", err, keys)
	}
}

// connect does not pass on the metadata of another server's error. A replay does not, either.
func TestErrorOfAnotherServer(t *testing.T) {
	guard := connectidem.MustNew(core.MustNew(core.Config{}), connectidem.Config{
		SharedByAllCallers: true, StoredMetadata: []string{"x-order"}})
	handler := func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		theirs := connect.NewWireError(connect.CodeNotFound, errors.New("no such book"))
		theirs.Meta().Set("X-Order", "17")
		return nil, theirs
	}
	server := httptest.NewServer(connect.NewUnaryHandler(createOrder, handler, connect.WithInterceptors(guard)))
	defer server.Close()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+createOrder)
	for _, replayed := range []string{"", "true"} {
		request := connect.NewRequest(new(emptypb.Empty))
		request.Header().Set("Idempotency-Key", "k-1")
		_, err := client.CallUnary(t.Context(), request)
		var e *connect.Error
		if !errors.As(err, &e) || e.Meta().Get("Idempotent-Replayed") != replayed || e.Meta().Get("X-Order") != "" {
			t.Errorf("%v; with the metadata %v", err, e.Meta())
		}
	}
}
