package connectidem_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/idem-go/idem/connectidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
)

const createOrder = "/shop.v1.Orders/Create" // generated code has such constants

func Example() {
	engine := core.MustNew(core.Config{}) // with a Service, and a Store that all instances share
	guard := connectidem.MustNew(engine, connectidem.Config{
		User: func(ctx context.Context) (string, error) { return userOf(ctx) }, // whom your authentication has found
	})
	create := func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		fmt.Println("ordered", r.Msg.GetValue())
		return connect.NewResponse(wrapperspb.String("order-17")), nil
	}
	server := httptest.NewServer(connect.NewUnaryHandler(createOrder, create, connect.WithInterceptors(guard)))
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+createOrder)
	for _, what := range []string{"a book", "a book", "a pen"} { // an order, its retry, and another order under the same key
		request := connect.NewRequest(wrapperspb.String(what))
		request.Header().Set("X-User", "ann")
		request.Header().Set("Idempotency-Key", "k-1")
		response, err := client.CallUnary(context.Background(), request)
		if err != nil {
			fmt.Println(connect.CodeOf(err), connectidem.Refused(err))
			continue
		}
		fmt.Println(response.Msg.GetValue(), response.Header().Values("Idempotent-Replayed"))
	}
	// Output:
	// ordered a book
	// order-17 []
	// order-17 [true]
	// failed_precondition key_reused
}

// Each call gets a key of its own, and is tried again while the service, or the same call, is not through.
func ExampleClient() {
	tries := 0
	create := func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		if tries++; tries == 1 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("restarting"))
		}
		fmt.Println("a key of", len(r.Header().Get("Idempotency-Key")), "characters")
		return connect.NewResponse(wrapperspb.String("order-17")), nil
	}
	server := httptest.NewServer(connect.NewUnaryHandler(createOrder, create))
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+createOrder,
		connect.WithInterceptors(connectidem.Client(connect.CodeUnavailable)))
	response, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("a book")))
	fmt.Println(response.Msg.GetValue(), err, tries)
	// Output:
	// a key of 26 characters
	// order-17 <nil> 2
}

func userOf(ctx context.Context) (string, error) {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	if user := info.RequestHeader().Get("X-User"); user != "" {
		return user, nil
	}
	return "", errors.New("no user")
}

// The handlers of docs/rpc.md.
func _(store store.Store, auth connect.Interceptor, userOf func(context.Context) (string, error), mux *http.ServeMux,
	service protoreflect.ServiceDescriptor, newOrdersHandler func(...connect.HandlerOption) (string, http.Handler)) error {
	engine, err := core.New(core.Config{Service: "shop", Store: store}) // all instances share the store
	if err != nil {
		return err
	}
	guard, err := connectidem.New(engine, connectidem.Config{User: userOf}) // the user that auth found
	if err != nil {
		return err
	}
	mux.Handle(newOrdersHandler(connect.WithInterceptors(auth, guard)))
	passing, err := guard.Passing(service) // service: its generated descriptor
	if err != nil {
		return err
	}
	slog.Info("unprotected", "methods", passing)
	return nil
}
