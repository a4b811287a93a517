package grpcidem_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
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
	for name, response := range map[string]any{"nothing": nil, "no message": notProtobuf{"x"}, "not linked in": notLinked(t)} {
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

	// A repeated field is no key's, and a refusal tells nobody why there is no user.
	strange := config
	strange.SharedByAllCallers, strange.User = false, func(context.Context) (string, error) { return "", errors.New("hunter2") }
	strange.Key = grpcidem.KeyField("paths")
	err := call(grpcidem.MustNew(engine, strange), &fieldmaskpb.FieldMask{Paths: []string{"k"}}, nil)
	if grpcidem.Refused(err) != codes.KeyMissing {
		t.Errorf("a key in a repeated field: %v", err)
	}
	strange.Key = config.Key
	err = call(grpcidem.MustNew(engine, strange), wrapperspb.String("k"), nil)
	if grpcidem.Refused(err) != codes.UserMissing || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("without a user: %v", err)
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

// stream is what a handler's metadata goes to: none, once the header has been sent.
type stream struct{ grpc.ServerTransportStream }

func (stream) SetHeader(metadata.MD) error { return errors.New("the header has been sent") }

// What the client did not get is not replayed.
func TestMetadataThatComesTooLate(t *testing.T) {
	guard := grpcidem.MustNew(core.MustNew(core.Config{}), grpcidem.Config{
		SharedByAllCallers: true, Key: grpcidem.KeyField("value"), StoredMetadata: []string{"x-a"}})
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.v1.Orders/Create"}
	replayed := &sent{}
	for _, s := range []grpc.ServerTransportStream{stream{}, replayed} {
		ctx := grpc.NewContextWithServerTransportStream(t.Context(), s)
		_, err := guard.Unary(ctx, wrapperspb.String("k"), info, func(ctx context.Context, _ any) (any, error) {
			if grpc.SetHeader(ctx, metadata.Pairs("x-a", "1")) == nil {
				t.Error("the stream has taken it")
			}
			return wrapperspb.String("done"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(replayed.header["x-a"]) > 0 || len(replayed.header["idempotent-replayed"]) == 0 {
		t.Errorf("the replay has the header %v", replayed.header)
	}
}

// sent notes the header of a replay.
type sent struct {
	stream
	header metadata.MD
}

func (s *sent) SetHeader(md metadata.MD) error { s.header = md; return nil }
func (*sent) SetTrailer(metadata.MD) error     { return nil }

// A client's options are the caller's, who may use the rest of their array.
func TestOptionsOfACaller(t *testing.T) {
	opts := make([]grpc.CallOption, 1, 2)
	opts[0] = grpc.WaitForReady(true)
	err := grpcidem.Client()(t.Context(), "/shop.v1.Orders/Create", nil, nil, nil,
		func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, got ...grpc.CallOption) error {
			if len(got) != 2 || got[0] != opts[0] {
				t.Errorf("the call has the options %v", got)
			}
			return nil
		}, opts...)
	if err != nil || opts[:2][1] != nil {
		t.Errorf("%v; what is behind the caller's options is %v", err, opts[:2][1])
	}
}
