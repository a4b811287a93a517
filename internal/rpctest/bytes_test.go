package rpctest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	pb "google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	newer "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/idem-go/idem/connectidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/grpcidem"
	"github.com/idem-go/idem/idemtest"
)

// All tries of a call have the same bytes, so that the answer of one that was lost is replayed, also if the request has maps that the
// server does not know: they come in another order each time that they are marshalled.
func TestTriesHaveTheSameBytes(t *testing.T) {
	type message = newer.LoadBalancerAccumulatedStatsResponse // its field 4 is a map of messages with maps; the server's requests have none
	request := &message{StatsPerMethod: make(map[string]*newer.LoadBalancerAccumulatedStatsResponse_MethodStats)}
	for i := range int32(20) {
		results := make(map[int32]int32)
		for j := range int32(20) {
			results[j] = i
		}
		request.StatsPerMethod[strconv.Itoa(int(i))] = &newer.LoadBalancerAccumulatedStatsResponse_MethodStats{Result: results}
	}
	lost := func(tries *int, err error) bool { *tries++; return err == nil && *tries == 1 }
	grpcCall := func(opts ...grpc.CallOption) func(t *testing.T, addr string) (replayed bool, err error) {
		return func(t *testing.T, addr string) (replayed bool, err error) {
			tries := 0
			further := func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
				opts ...grpc.CallOption) error {
				require.IsType(t, new(message), request, "interceptors further in have the caller's message")
				err := invoke(ctx, method, request, reply, cc, opts...)
				if lost(&tries, err) {
					return status.Error(codes.Unavailable, "lost")
				}
				return err
			}
			conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithChainUnaryInterceptor(grpcidem.Client(codes.Unavailable), further))
			require.NoError(t, err)
			defer conn.Close()
			var header metadata.MD
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", "ann")
			err = conn.Invoke(ctx, order, request, new(pb.ErrorInfo), append(opts, grpc.Header(&header))...)
			return len(header["idempotent-replayed"]) > 0, err
		}
	}
	connectCall := func(options ...connect.ClientOption) func(t *testing.T, addr string) (replayed bool, err error) {
		return func(t *testing.T, addr string) (replayed bool, err error) {
			tries := 0
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			defer transport.CloseIdleConnections()
			client := connect.NewClient[message, pb.ErrorInfo](&http.Client{Transport: transport}, "http://"+addr+order,
				append(options, connect.WithInterceptors(connectidem.Client(connect.CodeUnavailable),
					connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
						return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
							require.True(t, proto.Equal(request, r.Any().(proto.Message)), "interceptors further in see the message")
							response, err := next(ctx, r)
							if lost(&tries, err) {
								return nil, connect.NewError(connect.CodeUnavailable, errors.New("lost"))
							}
							return response, err
						}
					})))...)
			r := connect.NewRequest(request)
			r.Header().Set("X-User", "ann")
			response, err := client.CallUnary(t.Context(), r)
			return err == nil && response.Header().Get("Idempotent-Replayed") != "", err
		}
	}
	for name, c := range map[string]struct {
		server
		call func(t *testing.T, addr string) (replayed bool, err error)
	}{
		"grpc-go":                        {grpcServer, grpcCall()},
		"grpc-go, which names its codec": {grpcServer, grpcCall(grpc.CallContentSubtype("proto"))},
		"Connect":                        {connectServer, connectCall()},
		"Connect as JSON":                {connectServer, connectCall(connect.WithProtoJSON())},
		"connect-go with gRPC":           {connectServer, connectCall(connect.WithGRPC())},
	} {
		t.Run(name, func(t *testing.T) {
			engine := idemtest.New(t, core.Config{})
			addr, _ := c.server(t, engine.Engine, config{}, echo())
			replayed, err := c.call(t, addr)
			require.NoError(t, err)
			require.True(t, replayed)
			engine.WantRuns("DO "+order, 1)
		})
	}
}

// What an Any holds is compared by its content if the program knows the type: who makes a message anew, as after a restart, has its
// maps in another order.
func TestAny(t *testing.T) {
	hold := func(text string) *anypb.Any {
		s := &structpb.Struct{Fields: make(map[string]*structpb.Value)}
		for i := range 20 {
			s.Fields[strconv.Itoa(i)] = structpb.NewStringValue(text)
		}
		return packed(t, s)
	}
	unknown := func(text string) *anypb.Any {
		return &anypb.Any{TypeUrl: "type.googleapis.com/shop.v1.Unknown", Value: []byte(text)}
	}
	malformed := func(text string) *anypb.Any {
		return &anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.Struct", Value: []byte("\xff" + text)}
	}
	for name, guarded := range map[string]func(engine *core.Engine) func(request proto.Message) error{
		"grpcidem": func(engine *core.Engine) func(proto.Message) error {
			guard := grpcidem.MustNew(engine, grpcidem.Config{SharedByAllCallers: true, Key: grpcidem.KeyField("message")})
			return func(request proto.Message) error {
				_, err := guard.Unary(t.Context(), request, &grpc.UnaryServerInfo{FullMethod: order},
					func(context.Context, any) (any, error) { return request, nil })
				return err
			}
		},
		"connectidem": func(engine *core.Engine) func(proto.Message) error {
			guard := connectidem.MustNew(engine, connectidem.Config{SharedByAllCallers: true, Key: connectidem.KeyField("message")})
			return func(request proto.Message) error {
				_, err := guard.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
					return connect.NewResponse(request.(*spb.Status)), nil
				})(t.Context(), specified{connect.NewRequest(request.(*spb.Status))})
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := guarded(core.MustNew(core.Config{}))
			for what, made := range map[string]func(text string) *anypb.Any{
				"a message": hold, "an Any in an Any": func(text string) *anypb.Any { return packed(t, hold(text)) },
				"an unknown type": unknown, "malformed": malformed,
			} {
				request := &spb.Status{Message: what, Details: []*anypb.Any{made("a book")}}
				before := proto.Clone(request)
				for range 5 {
					require.NoError(t, call(request), what)
					require.True(t, proto.Equal(before, request), "the handler has what was sent")
					request.Details[0] = made("a book")
					before = proto.Clone(request)
				}
				require.Error(t, call(&spb.Status{Message: what, Details: []*anypb.Any{made("a pen")}}), what)
			}
			// What nests deeper than anybody needs is compared as it was sent, which bounds what a call costs.
			deep := func() *spb.Status {
				a := hold("a book")
				for range 20 {
					a = packed(t, a)
				}
				return &spb.Status{Message: "deep", Details: []*anypb.Any{a}}
			}
			require.NoError(t, call(deep()))
			require.Error(t, call(deep()))
		})
	}
}

// specified is a request of the method order.
type specified struct{ connect.AnyRequest }

func (specified) Spec() connect.Spec { return connect.Spec{Procedure: order} }
