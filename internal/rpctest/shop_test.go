package rpctest

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	pb "google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The methods of the shop. Their messages are linked in already: a request and a response of all is a google.rpc.ErrorInfo, which has
// strings and a map.
const (
	order = "/idem.test.Shop/Order"
	pay   = "/idem.test.Shop/Pay"
	read  = "/idem.test.Shop/Read"  // has no side effects
	watch = "/idem.test.Shop/Watch" // a stream
)

var shop = func() protoreflect.ServiceDescriptor {
	message := proto.String(".google.rpc.ErrorInfo")
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("idem/test/shop.proto"), Package: proto.String("idem.test"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/rpc/error_details.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Shop"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Order"), InputType: message, OutputType: message},
			{Name: proto.String("Pay"), InputType: message, OutputType: message},
			{Name: proto.String("Read"), InputType: message, OutputType: message,
				Options: &descriptorpb.MethodOptions{IdempotencyLevel: descriptorpb.MethodOptions_NO_SIDE_EFFECTS.Enum()}},
			{Name: proto.String("Watch"), InputType: message, OutputType: message, ServerStreaming: proto.Bool(true)},
		}}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
	return file.Services().Get(0)
}()

// failure is the error of a handler, or of a call.
type failure struct {
	code    codes.Code
	message string
	details []*anypb.Any
	err     error // of a handler, in place of the rest
	behind  error // what the error of a handler wraps
}

// wrapping is an error with a status of its own, and another error behind it.
type wrapping struct{ *failure }

func (w wrapping) Error() string              { return w.message }
func (w wrapping) GRPCStatus() *status.Status { return status.New(w.code, w.message) }
func (w wrapping) Unwrap() error              { return w.behind }

func (f *failure) grpc() error {
	switch {
	case f == nil:
		return nil
	case f.err != nil:
		return f.err
	case f.behind != nil:
		return wrapping{f}
	}
	s := status.New(f.code, f.message).Proto()
	s.Details = f.details
	return status.FromProto(s).Err()
}

func (f *failure) connect() error {
	switch {
	case f == nil:
		return nil
	case f.err != nil:
		return f.err
	}
	e := connect.NewError(connect.Code(f.code), errors.New(f.message))
	if f.behind != nil {
		e = connect.NewError(connect.Code(f.code), wrapping{f})
	}
	for _, d := range f.details {
		detail, _ := connect.NewErrorDetail(d) // an Any: can't fail
		e.AddDetail(detail)
	}
	return e
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	require.NoError(t, err)
	return a
}

// handler serves all methods of a shop, whatever the server.
type handler func(c *served) (*pb.ErrorInfo, *failure)

// served is a call that a handler serves.
type served struct {
	context.Context
	method          string
	request         *pb.ErrorInfo
	header, trailer metadata.MD // for the handler to fill in; names in lower case, binary values as bytes
}

// outer returns the context that interceptors outside of the guard have.
func (c *served) outer() context.Context { return c.Value(outerKey{}).(context.Context) }

type outerKey struct{}

// answer is what a client got.
type answer struct {
	response *pb.ErrorInfo
	failure
	header metadata.MD // header and trailer, as Connect has them; names in lower case, binary values as bytes
}

func (a *answer) replayed() bool { return len(a.header["idempotent-replayed"]) == 1 }

// reason is that of the refusal, or "".
func (a *answer) reason(t *testing.T) string {
	t.Helper()
	for _, d := range a.details {
		var info pb.ErrorInfo
		if d.UnmarshalTo(&info) == nil {
			require.Equal(t, "github.com/idem-go/idem", info.GetDomain())
			return info.GetReason()
		}
	}
	return ""
}
