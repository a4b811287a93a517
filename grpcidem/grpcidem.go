package grpcidem

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idem-go/idem/adapterkit/rpckit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// Config configures a [Guard]. User or SharedByAllCallers must be set.
type Config struct {
	// Policy is a task's policy, see [core.Engine.Task]. Its Name must be empty: each method is a task, named as the method.
	// So must its Presence and its Linger be, which are below.
	Policy core.TaskPolicy

	// Methods are the full names of the methods that are protected, such as "/shop.v1.Orders/Create". None: all unary methods,
	// but those of gRPC's own services (health, channelz). Methods that are declared to have no side effects
	// (option idempotency_level = NO_SIDE_EFFECTS) and streams pass in any case: see [Guard.Passing].
	Methods []string

	// Key says where a call carries its key. Zero: in the metadata idempotency-key, as a string or token of RFC 8941, of at most
	// 255 bytes.
	Key KeySource

	// Presence says whether a call must have a key. Zero: [core.Required].
	Presence core.Presence

	// User returns the caller that an outer interceptor has authenticated. An error, or an empty user, refuses the call with
	// UNAUTHENTICATED; the client does not get the error. It is called concurrently. Users are stored as they are, up to 64 bytes:
	// return no secret.
	User func(ctx context.Context) (string, error)

	// SharedByAllCallers makes all callers one user, so that each can get any caller's answers. It takes the place of User.
	SharedByAllCallers bool

	// Failed decides whether a status, which is not OK, is a failure. Nil: [FailedByCode]. A panic and a refusal, even of
	// another service, are always failures. It is called concurrently.
	Failed func(s *status.Status) bool

	// Authorize is called before a stored answer is replayed, because the caller may have lost its rights since. An error refuses it
	// with PERMISSION_DENIED; the client does not get the error. It is called concurrently. Nil: replays need no permission.
	Authorize func(ctx context.Context, method string, request any) error

	// StoredMetadata are the names of the metadata that are stored and replayed, if a handler has set them as header or trailer.
	// All other metadata is sent with the first answer only. With it, grpc.SetSendCompressor and
	// grpc.ClientSupportedCompressors don't work in handlers.
	StoredMetadata []string

	// Linger is how much longer a handler's context stays valid after the client has left (CANCELLED, a lost connection), so
	// that it finishes and its answer is there for the retry. Zero: 1 minute; negative: it ends at once. The call's deadline
	// always ends it.
	Linger time.Duration
}

// KeySource says where a call carries its key. The zero KeySource is the metadata idempotency-key.
type KeySource struct{ field string }

// KeyField takes the key from a string field of the request message, as AIP-155 has it for "request_id": any text of 1 to 255 bytes.
// An empty or missing field is no key. [Guard.Passing] reports methods whose request lacks the field.
func KeyField(name string) KeySource { return KeySource{name} }

// FailedByCode reports whether the code of a status means that the operation was not done, or that nobody knows, so that the record is
// released and the next try runs: CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, UNIMPLEMENTED, INTERNAL,
// UNAVAILABLE and DATA_LOSS. It is also true for every status with a google.rpc.RetryInfo. All others are answers, which are stored.
func FailedByCode(s *status.Status) bool {
	return rpckit.Failed(uint32(s.Code())) || slices.ContainsFunc(s.Proto().GetDetails(), func(d *anypb.Any) bool {
		return strings.HasSuffix(d.GetTypeUrl(), "/google.rpc.RetryInfo")
	})
}

// Guard is the server side: [Guard.Unary] is its interceptor. It is safe for concurrent use.
type Guard struct {
	kit    *rpckit.Guard
	config Config
}

// New makes a guard. The error joins all faults of c, each a *[core.ConfigError].
func New(engine *core.Engine, c Config) (*Guard, error) {
	kit, err := rpckit.New(engine, rpckit.Config{Package: "grpcidem", Policy: c.Policy, Methods: c.Methods, Presence: c.Presence,
		User: c.User, SharedByAllCallers: c.SharedByAllCallers, Authorize: c.Authorize, StoredMetadata: c.StoredMetadata, Linger: c.Linger})
	if err != nil {
		return nil, err
	}
	if c.Failed == nil {
		c.Failed = FailedByCode
	}
	return &Guard{kit: kit, config: c}, nil
}

// MustNew is [New] for a configuration that is fixed in the program. It panics with the faults.
func MustNew(engine *core.Engine, c Config) *Guard {
	g, err := New(engine, c)
	if err != nil {
		panic(err)
	}
	return g
}

// Unary is a [grpc.UnaryServerInterceptor]. Mount it inside the interceptors that recover panics, log and authenticate:
//
//	grpc.ChainUnaryInterceptor(recovery, auth, guard.Unary)
func (g *Guard) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !g.kit.Protects(describe(info.FullMethod, g.config.Key)) {
		return handler(ctx, request)
	}
	fingerprint, err := digest(request)
	if err != nil {
		return nil, status.Error(grpccodes.Internal, "grpcidem: the request can't be read as a Protobuf message")
	}
	call := rpckit.Call{Method: info.FullMethod, InField: g.config.Key.field != "", Request: request, Fingerprint: fingerprint}
	if call.InField {
		call.Keys = keysInField(request, g.config.Key.field)
	} else {
		call.Keys = metadata.ValueFromIncomingContext(ctx, rpckit.KeyName)
	}
	var response any
	answer, refusal := g.kit.Do(ctx, &call, func(ctx context.Context) rpckit.Outcome {
		ctx, sent := g.record(ctx)
		response, err = handler(ctx, request)
		return g.outcome(response, err, sent)
	})
	if answer != nil {
		if response, err, ok := decode(answer); ok {
			mark(ctx, answer)
			return response, err
		}
		refusal = core.NewRefusal(codes.ResultUnavailable, nil)
	}
	if refusal != nil {
		return nil, refuse(ctx, refusal)
	}
	return response, err
}

// Passing returns the full names of the methods of a server (a *grpc.Server) that pass unprotected, sorted: streams, methods without
// side effects, those that [Config].Methods leaves out, and, if no key is required, those whose request has no [KeyField]. Call it when
// all services are registered, and log what it returns. The error joins a *[core.ConfigError] for each method that Config means to
// protect and that can't be protected: an unknown one, a stream, one without the field.
func (g *Guard) Passing(server interface {
	GetServiceInfo() map[string]grpc.ServiceInfo
}) ([]string, error) {
	var methods []rpckit.Method
	for service, info := range server.GetServiceInfo() {
		for _, m := range info.Methods {
			method := describe("/"+service+"/"+m.Name, g.config.Key)
			method.Stream = m.IsClientStream || m.IsServerStream
			methods = append(methods, method)
		}
	}
	return g.kit.Passing(methods)
}

// describe describes a method, as far as its descriptor is linked into the program.
func describe(name string, key KeySource) rpckit.Method {
	m := rpckit.Method{Name: name}
	full := strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", ".")
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(full))
	if method, ok := d.(protoreflect.MethodDescriptor); ok {
		options, _ := method.Options().(*descriptorpb.MethodOptions)
		m.Safe = options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
		m.Keyless = key.field != "" && stringField(method.Input(), key.field) == nil
	}
	return m
}
