package connectidem

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/idem-go/idem/adapterkit/rpckit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// Config configures a [Guard]. User or SharedByAllCallers must be set.
type Config struct {
	// Policy is a task's policy, see [core.Engine.Task]. Its Name must be empty: each procedure is a task, named as the procedure.
	// So must its Presence and its Linger be, which are below.
	Policy core.TaskPolicy

	// Methods are the procedures that are protected, such as "/shop.v1.Orders/Create". None: all unary ones, but those of gRPC's own
	// services (health, channelz). Procedures that are declared to have no side effects ([connect.IdempotencyNoSideEffects])
	// and streams pass in any case: see [Guard.Passing].
	Methods []string

	// Key says where a call carries its key. Zero: in the header field Idempotency-Key, as a string or token of RFC 8941, of at most
	// 255 bytes.
	Key KeySource

	// Presence says whether a call must have a key. Zero: [core.Required].
	Presence core.Presence

	// User returns the caller that an outer interceptor or middleware has authenticated. An error, or an empty user, refuses the call with
	// "unauthenticated"; the client does not get the error. It is called concurrently. Users are stored as they are, up to 64 bytes:
	// return no secret.
	User func(ctx context.Context) (string, error)

	// SharedByAllCallers makes all callers one user, so that each can get any caller's answers. It takes the place of User.
	SharedByAllCallers bool

	// Failed decides whether an error is a failure. Nil: [FailedByCode]. A panic and a refusal, even of another service,
	// are always failures. It is called concurrently.
	Failed func(err *connect.Error) bool

	// Authorize is called before a stored answer is replayed, because the caller may have lost its rights since. An error refuses it
	// with "permission_denied"; the client does not get the error. It is called concurrently. Nil: replays need no permission.
	Authorize func(ctx context.Context, method string, request any) error

	// StoredMetadata are the names of the metadata that are stored and replayed, if a handler has set them as header, trailer or
	// metadata of its error. All other metadata is sent with the first answer only.
	StoredMetadata []string

	// Linger is how much longer a handler's context stays valid after the client has left, so that it finishes and its answer is
	// there for the retry. Zero: 1 minute; negative: it ends at once. The call's deadline always ends it.
	Linger time.Duration
}

// KeySource says where a call carries its key. The zero KeySource is the header field Idempotency-Key.
type KeySource struct{ field string }

// KeyField takes the key from a string field of the request message, as AIP-155 has it for "request_id": any text of 1 to 255 bytes.
// An empty or missing field is no key. [Guard.Passing] reports methods whose request lacks the field.
func KeyField(name string) KeySource { return KeySource{name} }

// FailedByCode reports whether the code of an error means that the operation was not done, or that nobody knows, so that the record is
// released and the next try runs: canceled, unknown, deadline_exceeded, resource_exhausted, aborted, unimplemented, internal,
// unavailable and data_loss. It is also true for every error with a google.rpc.RetryInfo. All others are answers, which are stored.
func FailedByCode(err *connect.Error) bool {
	return rpckit.Failed(uint32(err.Code())) || slices.ContainsFunc(err.Details(), func(d *connect.ErrorDetail) bool {
		return d.Type() == "google.rpc.RetryInfo"
	})
}

// Guard is the server side: an interceptor for handlers. It is safe for concurrent use. Mount it inside the interceptors that log and
// authenticate:
//
//	connect.WithInterceptors(auth, guard)
type Guard struct {
	kit    *rpckit.Guard
	config Config
}

var _ connect.Interceptor = (*Guard)(nil)

// New makes a guard. The error joins all faults of c, each a *[core.ConfigError].
func New(engine *core.Engine, c Config) (*Guard, error) {
	kit, err := rpckit.New(engine, rpckit.Config{Package: "connectidem", Policy: c.Policy, Methods: c.Methods, Presence: c.Presence,
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

// WrapUnary implements [connect.Interceptor]. Calls of clients pass.
func (g *Guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		spec := request.Spec()
		method := rpckit.Method{Name: spec.Procedure, Safe: spec.IdempotencyLevel == connect.IdempotencyNoSideEffects}
		if spec.IsClient || !g.kit.Protects(method) {
			return next(ctx, request)
		}
		fingerprint, err := digest(request.Any())
		if err != nil {
			return nil, connect.NewError(connect.CodeInternal, errNoMessage)
		}
		call := rpckit.Call{Method: spec.Procedure, InField: g.config.Key.field != "", Request: request.Any(), Fingerprint: fingerprint}
		if call.InField {
			call.Keys = keysInField(request.Any(), g.config.Key.field)
		} else {
			call.Keys = request.Header().Values(rpckit.KeyName)
		}
		var response connect.AnyResponse
		answer, refusal := g.kit.Do(ctx, &call, func(ctx context.Context) rpckit.Outcome {
			response, err = next(ctx, request)
			return g.outcome(ctx, response, err)
		})
		if answer != nil {
			if response, err, ok := replay(ctx, answer); ok {
				return response, err
			}
			refusal = core.NewRefusal(codes.ResultUnavailable, nil)
		}
		if refusal != nil {
			return nil, refuse(refusal)
		}
		return response, err
	}
}

// WrapStreamingClient implements [connect.Interceptor]. Streams pass.
func (g *Guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor]. Streams pass.
func (g *Guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// Passing returns the procedures of services that pass unprotected, sorted: streams, procedures without side effects, those that
// [Config].Methods leaves out, and, if no key is required, those whose request has no [KeyField]. Give it all services, as
// generated code describes them (orderv1.File_order_v1_order_proto.Services()), and log what it returns. The error joins a
// *[core.ConfigError] for each procedure that the Config means to protect and that can't be: an unknown one, a stream, one
// without the field.
func (g *Guard) Passing(services ...protoreflect.ServiceDescriptor) ([]string, error) {
	var methods []rpckit.Method
	for _, service := range services {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			options, _ := m.Options().(*descriptorpb.MethodOptions)
			methods = append(methods, rpckit.Method{
				Name:    "/" + string(service.FullName()) + "/" + string(m.Name()),
				Stream:  m.IsStreamingClient() || m.IsStreamingServer(),
				Safe:    options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS,
				Keyless: g.config.Key.field != "" && stringField(m.Input(), g.config.Key.field) == nil,
			})
		}
	}
	return g.kit.Passing(methods)
}
