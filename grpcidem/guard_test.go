package grpcidem_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/grpcidem"
)

// notLinked returns a message whose type a process that replays does not know.
func notLinked(t *testing.T) proto.Message {
	t.Helper()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("x.proto"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("X")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewMessage(file.Messages().Get(0))
}

// What no generated server does is safe all the same. The cases over connections are those of internal/rpctest.
func TestWithoutConnection(t *testing.T) {
	type notProtobuf struct{ Value string }
	config := grpcidem.Config{SharedByAllCallers: true, Key: grpcidem.KeyField("value")}
	engine := core.MustNew(core.Config{})
	guard, other := grpcidem.MustNew(engine, config), grpcidem.MustNew(engine, config)
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.v1.Orders/Create"}
	runs := 0
	call := func(g *grpcidem.Guard, request, response any) error {
		_, err := g.Unary(t.Context(), request, info, func(context.Context, any) (any, error) {
			runs++
			return response, nil
		})
		return err
	}
	for name, response := range map[string]any{"nothing": nil, "no message": notProtobuf{"x"}, "a message that is not linked in": notLinked(t)} {
		runs = 0
		if err := call(guard, wrapperspb.String(name), response); err != nil || runs != 1 {
			t.Errorf("%s: the handler's response is not for the guard to judge: %v", name, err)
		}
		if err := call(guard, wrapperspb.String(name), response); grpcidem.Refused(err) != codes.ResultUnavailable || runs != 1 {
			t.Errorf("%s: the duplicate got %v, after %d runs", name, err, runs)
		}
	}
	runs = 0
	if err := call(guard, notProtobuf{"x"}, nil); status.Code(err) != grpccodes.Internal || runs != 0 {
		t.Errorf("a request without a fingerprint: %v, %d runs", err, runs)
	}

	nested := func(inner *grpcidem.Guard) error {
		_, err := guard.Unary(t.Context(), wrapperspb.String("k"), info, func(ctx context.Context, request any) (any, error) {
			return inner.Unary(ctx, request, info, func(context.Context, any) (any, error) { return wrapperspb.String("done"), nil })
		})
		return err
	}
	if err := nested(other); grpcidem.Refused(err) != codes.GuardConflict {
		t.Errorf("two guards for one method: %v", err)
	}
	if err := nested(guard); err != nil {
		t.Errorf("a guard that is mounted twice: %v", err)
	}
}
