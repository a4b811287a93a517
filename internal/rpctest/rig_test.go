package rpctest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	pb "google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idem-go/idem/adapterkit/rpckit"
	"github.com/idem-go/idem/connectidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/grpcidem"
)

// config is what the Configs of both packages say.
type config struct {
	rpckit.Config
	field  string                  // of the key
	failed func(c codes.Code) bool // nil: the default
	before func(ctx context.Context)
}

// guard is a guard of either package.
type guard interface {
	passing() ([]string, error)
}

// A server is started with a guard and a handler, and returns its address.
type server func(t *testing.T, engine *core.Engine, c config, h handler) (addr string, g guard)

// A client calls methods. retry are the codes of the client's interceptor; none: it is not mounted; OK: mounted, without codes.
type client func(t *testing.T, addr string, retry ...codes.Code) caller

type caller func(ctx context.Context, method string, request *pb.ErrorInfo, md metadata.MD) *answer

// rigs are all combinations.
var rigs = []struct {
	name string
	server
	client
}{
	{"grpc-go", grpcServer, grpcClient},
	{"Connect", connectServer, connectClient()},
	{"Connect as JSON", connectServer, connectClient(connect.WithProtoJSON())},
	{"connect-go with gRPC", connectServer, connectClient(connect.WithGRPC())},
	{"connect-go with gRPC-Web", connectServer, connectClient(connect.WithGRPCWeb())},
	{"grpc-go to connect-go", connectServer, grpcClient},
	{"connect-go to grpc-go", grpcServer, connectClient(connect.WithGRPC())},
}

// shopServer is the type of handlers that a grpc.ServiceDesc names.
type shopServer interface {
	serve(ctx context.Context, method string, request *pb.ErrorInfo) (*pb.ErrorInfo, error)
}

func (h handler) serve(ctx context.Context, method string, request *pb.ErrorInfo) (*pb.ErrorInfo, error) {
	c := &served{ctx, method, request, metadata.MD{}, metadata.MD{}}
	response, failed := h(c)
	for name, values := range c.header { // one after the other
		if err := grpc.SetHeader(ctx, metadata.MD{name: values}); err != nil && ctx.Err() == nil && c.outer().Err() == nil {
			return nil, err
		}
	}
	if err := grpc.SetTrailer(ctx, c.trailer); err != nil && ctx.Err() == nil && c.outer().Err() == nil {
		return nil, err
	}
	return response, failed.grpc()
}

func grpcUnary(method string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: method[strings.LastIndex(method, "/")+1:],
		Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			request := new(pb.ErrorInfo)
			if err := decode(request); err != nil {
				return nil, err
			}
			info := &grpc.UnaryServerInfo{Server: srv, FullMethod: method}
			return interceptor(ctx, request, info, func(ctx context.Context, request any) (any, error) {
				return srv.(shopServer).serve(ctx, method, request.(*pb.ErrorInfo))
			})
		}}
}

var grpcShop = grpc.ServiceDesc{ServiceName: "idem.test.Shop", HandlerType: (*shopServer)(nil),
	Methods: []grpc.MethodDesc{grpcUnary(order), grpcUnary(pay), grpcUnary(read)},
	Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		request := new(pb.ErrorInfo)
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		response, err := srv.(shopServer).serve(stream.Context(), watch, request)
		if err != nil {
			return err
		}
		return stream.SendMsg(response)
	}}},
}

type grpcGuard struct {
	*grpcidem.Guard
	server *grpc.Server
}

func (g grpcGuard) passing() ([]string, error) { return g.Passing(g.server) }

// newGRPC makes a server of gRPC.
func newGRPC(t *testing.T, engine *core.Engine, c config, h handler) (*grpc.Server, guard) {
	t.Helper()
	own := grpcidem.Config{Policy: c.Policy, Methods: c.Methods, Presence: c.Presence, User: userOf(&c),
		SharedByAllCallers: c.SharedByAllCallers, Authorize: c.Authorize, StoredMetadata: c.StoredMetadata, Linger: c.Linger}
	if c.field != "" {
		own.Key = grpcidem.KeyField(c.field)
	}
	if c.failed != nil {
		own.Failed = func(s *status.Status) bool { return c.failed(s.Code()) }
	}
	g := grpcidem.MustNew(engine, own)
	outer := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = status.Error(codes.Internal, "panic")
			}
		}()
		if c.before != nil {
			c.before(ctx)
		}
		return handle(context.WithValue(ctx, outerKey{}, ctx), request)
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(outer, g.Unary))
	s.RegisterService(&grpcShop, h)
	return s, grpcGuard{g, s}
}

func grpcServer(t *testing.T, engine *core.Engine, c config, h handler) (string, guard) {
	s, g := newGRPC(t, engine, c, h)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String(), g
}

// userOf is the user of a config, or the one that a call names.
func userOf(c *config) func(context.Context) (string, error) {
	if c.User != nil || c.SharedByAllCallers {
		return c.User
	}
	return func(ctx context.Context) (string, error) { return strings.Join(sentBy(ctx, "x-user"), ""), nil }
}

// sentBy returns the metadata of an incoming call.
func sentBy(ctx context.Context, name string) []string {
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		return info.RequestHeader().Values(name)
	}
	return metadata.ValueFromIncomingContext(ctx, name)
}

type connectGuard struct{ *connectidem.Guard }

func (g connectGuard) passing() ([]string, error) { return g.Passing(shop) }

// outside is an interceptor outside of the guard.
type outside struct{ c *config }

func (o outside) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if o.c.before != nil {
			o.c.before(ctx)
		}
		return next(context.WithValue(ctx, outerKey{}, ctx), request)
	}
}

func (outside) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (outside) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func connectServer(t *testing.T, engine *core.Engine, c config, h handler) (string, guard) {
	t.Helper()
	own := connectidem.Config{Policy: c.Policy, Methods: c.Methods, Presence: c.Presence, User: userOf(&c),
		SharedByAllCallers: c.SharedByAllCallers, Authorize: c.Authorize, StoredMetadata: c.StoredMetadata, Linger: c.Linger}
	if c.field != "" {
		own.Key = connectidem.KeyField(c.field)
	}
	if c.failed != nil {
		own.Failed = func(e *connect.Error) bool { return c.failed(codes.Code(e.Code())) }
	}
	g := connectidem.MustNew(engine, own)
	options := connect.WithHandlerOptions(
		connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error {
			return connect.NewError(connect.CodeInternal, errors.New("panic"))
		}), connect.WithInterceptors(outside{&c}, g))
	mux := http.NewServeMux()
	for _, method := range []string{order, pay, read} {
		level := connect.IdempotencyUnknown
		if method == read {
			level = connect.IdempotencyNoSideEffects
		}
		unary := func(ctx context.Context, request *connect.Request[pb.ErrorInfo]) (*connect.Response[pb.ErrorInfo], error) {
			c := &served{ctx, method, request.Msg, metadata.MD{}, metadata.MD{}}
			message, failed := h(c)
			if err := failed.connect(); err != nil {
				if e, ok := errors.AsType[*connect.Error](err); ok {
					info, _ := connect.CallInfoForHandlerContext(ctx)
					fill(info.ResponseHeader(), c.header)
					fill(e.Meta(), c.trailer)
				}
				return nil, err
			}
			response := connect.NewResponse(message)
			fill(response.Header(), c.header)
			fill(response.Trailer(), c.trailer)
			return response, nil
		}
		mux.Handle(method, connect.NewUnaryHandler(method, unary, options, connect.WithIdempotency(level)))
	}
	stream := func(ctx context.Context, request *connect.Request[pb.ErrorInfo], stream *connect.ServerStream[pb.ErrorInfo]) error {
		response, failed := h(&served{ctx, watch, request.Msg, metadata.MD{}, metadata.MD{}})
		if err := failed.connect(); err != nil {
			return err
		}
		return stream.Send(response)
	}
	mux.Handle(watch, connect.NewServerStreamHandler(watch, stream, options))
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), connectGuard{g}
}

// fill writes metadata as Connect has it.
func fill(h http.Header, md metadata.MD) {
	for name, values := range md {
		for _, value := range values {
			if strings.HasSuffix(name, "-bin") {
				value = connect.EncodeBinaryHeader([]byte(value))
			}
			h.Add(name, value)
		}
	}
}

// gather reads it.
func gather(md metadata.MD, headers ...http.Header) {
	for _, h := range headers {
		for name, values := range h {
			for _, value := range values {
				if name = strings.ToLower(name); strings.HasSuffix(name, "-bin") {
					raw, _ := connect.DecodeBinaryHeader(value)
					value = string(raw)
				}
				md.Append(name, value)
			}
		}
	}
}

// allow returns what is left of the codes of an interceptor without OK.
func allow[C ~uint32](retry []codes.Code) (allowed []C) {
	for _, code := range retry {
		if code != codes.OK {
			allowed = append(allowed, C(code))
		}
	}
	return allowed
}

func grpcClient(t *testing.T, addr string, retry ...codes.Code) caller {
	t.Helper()
	var options []grpc.DialOption
	if len(retry) > 0 {
		options = append(options, grpc.WithUnaryInterceptor(grpcidem.Client(allow[codes.Code](retry)...)))
	}
	return dial(t, addr, options...)
}

// dial returns the caller of a client of gRPC.
func dial(t *testing.T, addr string, options ...grpc.DialOption) caller {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return func(ctx context.Context, method string, request *pb.ErrorInfo, md metadata.MD) *answer {
		a := &answer{response: new(pb.ErrorInfo), header: metadata.MD{}}
		var header, trailer metadata.MD
		var err error
		if ctx = metadata.NewOutgoingContext(ctx, md); method == watch {
			var stream grpc.ClientStream
			if stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method); err == nil {
				err = errors.Join(stream.SendMsg(request), stream.CloseSend(), stream.RecvMsg(a.response))
			}
		} else {
			err = conn.Invoke(ctx, method, request, a.response, grpc.Header(&header), grpc.Trailer(&trailer))
		}
		a.header = metadata.Join(header, trailer)
		if err != nil {
			s := status.Convert(err)
			a.failure = failure{code: s.Code(), message: s.Message(), details: s.Proto().GetDetails(), err: err}
		}
		return a
	}
}

func connectClient(options ...connect.ClientOption) client {
	return func(t *testing.T, addr string, retry ...codes.Code) caller {
		t.Helper()
		options := options
		if len(retry) > 0 {
			options = append(slices.Clip(options), connect.WithInterceptors(connectidem.Client(allow[connect.Code](retry)...)))
		}
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		t.Cleanup(transport.CloseIdleConnections)
		return func(ctx context.Context, method string, request *pb.ErrorInfo, md metadata.MD) *answer {
			a := &answer{header: metadata.MD{}}
			own := connect.NewRequest(request)
			fill(own.Header(), md)
			level := connect.IdempotencyUnknown
			if method == read {
				level = connect.IdempotencyNoSideEffects
			}
			c := connect.NewClient[pb.ErrorInfo, pb.ErrorInfo](&http.Client{Transport: transport}, "http://"+addr+method,
				append(slices.Clip(options), connect.WithIdempotency(level))...)
			if method == watch {
				stream, err := c.CallServerStream(ctx, own)
				if err == nil && stream.Receive() {
					a.response = stream.Msg()
				}
				if stream != nil {
					err = errors.Join(err, stream.Err(), stream.Close())
				}
				a.fail(err)
				return a
			}
			response, err := c.CallUnary(ctx, own)
			if err == nil {
				a.response = response.Msg
				gather(a.header, response.Header(), response.Trailer())
			}
			a.fail(err)
			return a
		}
	}
}

// fail notes an error of connect.
func (a *answer) fail(err error) {
	if err == nil {
		return
	}
	a.failure = failure{code: codes.Code(connect.CodeOf(err)), message: err.Error(), err: err}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		a.message = e.Message()
		gather(a.header, e.Meta())
		for _, d := range e.Details() {
			a.details = append(a.details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
		}
	}
}
