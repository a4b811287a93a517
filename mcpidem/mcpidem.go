package mcpidem

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/adapterkit/mcpkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// Rule says how the calls of a tool are guarded. The zero Rule is [ByHints].
type Rule = mcpkit.Rule

// The rules.
const (
	// ByHints uses the tool's annotations: a tool with readOnlyHint passes, any other one has the rule [Config].Default.
	ByHints = mcpkit.ByHints
	// Pass guards no call.
	Pass = mcpkit.Pass
	// Optional guards calls that have a key. Others run each time.
	Optional = mcpkit.Optional
	// Required guards all calls, and refuses those without a key.
	Required = mcpkit.Required
	// Arguments guards all calls. For a call without a key, the key is made of its arguments: equal calls within [Config].Window are
	// one call, though a person may have meant two.
	Arguments = mcpkit.Arguments
)

// Report says how the tools of a server are guarded, see [Guard.Check].
type Report = mcpkit.Report

const (
	// KeyMeta is the name of the key in the _meta of a call.
	KeyMeta = mcpkit.KeyMeta
	// ReplayedMeta is true in the _meta of a result that was stored.
	ReplayedMeta = mcpkit.ReplayedMeta
	// RefusedMeta has the code of a refusal, in the _meta of a result.
	RefusedMeta = mcpkit.RefusedMeta
	// RetryAfterMeta has the number of seconds to wait, in the _meta of a refusal after which another try makes sense.
	RetryAfterMeta = mcpkit.RetryAfterMeta
	// KeyDescription describes [Config].Argument in a tool's schema, so that models repeat a key instead of making another one.
	KeyDescription = mcpkit.KeyDescription
)

// Config configures a [Guard]. Name must be set.
type Config struct {
	// Name is the server's name: letters, digits, -, _ and dots. It is part of the stored keys. The route of a call, in events and
	// for operators, is "DO name/tool".
	Name string

	// Policy is a task's policy, see [core.Engine.Task]. Its Name, Presence and Linger must be zero. A zero Duplicate,
	// which core.Replay() is, means core.Wait(30 * time.Second).
	Policy core.TaskPolicy

	// Tools are the rules of tools, by name. They take precedence over Rule and the hints.
	Tools map[string]Rule

	// Rule returns the rule of a tool that Tools does not name; [ByHints] leaves it to the hints. It is called at each call of the
	// tool, concurrently. It must not change the tool. Nil: the hints decide.
	Rule func(tool *mcp.Tool) Rule

	// Default is the rule of tools for which neither Tools, Rule nor a hint decides. Zero: [Optional].
	Default Rule

	// PassIdempotent lets tools with idempotentHint pass, too. A hint is a claim of the tool's author.
	PassIdempotent bool

	// Argument is the argument that has the key, if neither _meta nor the header Idempotency-Key has one. It is left out when
	// arguments are compared. See [KeyDescription]. Empty: no argument has the key.
	Argument string

	// Key returns the key of a call that has none of these, such as the id that a harness gives to a tool use. "" means none. It is
	// called concurrently. Nil: there is no such key.
	Key func(ctx context.Context, call *mcp.CallToolRequest) string

	// Window is how long a result whose key is made of the arguments ([Arguments]) is kept, from the end of the run. Zero: 1 minute.
	Window time.Duration

	// User returns the caller. An error, or an empty user, refuses a call that has a key; the client does not get the error. It is called
	// concurrently. Nil: the UserID of the call's TokenInfo (over SSE, of that with which the stream was opened), with its issuer if
	// Extra["iss"] has it; calls that did not come by HTTP are those of one user, because the process is. Users are stored as they
	// are, up to 64 bytes: return no secret.
	User func(ctx context.Context, call *mcp.CallToolRequest) (string, error)

	// SharedByAllCallers makes all callers one user, so that each can get any caller's results. It is for HTTP without authentication.
	SharedByAllCallers bool

	// Failed decides whether a result with IsError is a failure, after which the next call runs. Nil: each is. Results that say that
	// the arguments don't fit the schema are in any case. It is called concurrently and must not change the result.
	Failed func(result *mcp.CallToolResult) bool

	// Authorize is called before a stored result is replayed, because the caller may have lost its rights since. An error refuses the
	// replay; the client does not get the error. It is called concurrently. Nil: replays need no permission.
	Authorize func(ctx context.Context, call *mcp.CallToolRequest) error

	// Linger is how much longer a tool's context stays valid after the client has cancelled the call or left, so that the tool can
	// finish and its result is there for the repeated call. Zero: 1 minute; negative: it ends at once.
	Linger time.Duration
}

// Guard guards the tools of servers. It is safe for concurrent use.
type Guard struct {
	kit    *mcpkit.Guard
	config Config
}

// New makes a guard. The error joins all faults of c, each a *[core.ConfigError].
func New(engine *core.Engine, c Config) (*Guard, error) {
	kit, err := mcpkit.New(engine, mcpkit.Config{Package: "mcpidem", Name: c.Name, Policy: c.Policy, Tools: c.Tools, Default: c.Default,
		PassIdempotent: c.PassIdempotent, Argument: c.Argument, Window: c.Window, User: c.User != nil,
		SharedByAllCallers: c.SharedByAllCallers, Authorize: c.Authorize != nil, Linger: c.Linger})
	if err != nil {
		return nil, err
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

// Middleware is an [mcp.Middleware] for a server. Mount it inside middleware that authenticates and logs:
//
//	server.AddReceivingMiddleware(logging, guard.Middleware)
//
// It looks a tool up with a tools/list, which inner middleware also sees.
func (g *Guard) Middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		req, ok := request.(*mcp.CallToolRequest)
		if !ok || req.Params == nil {
			return next(ctx, method, request)
		}
		rule, err := g.rule(ctx, req, next)
		if err != nil {
			return nil, err
		}
		if rule == Pass {
			return next(ctx, method, request)
		}
		return g.call(ctx, req, rule, func(ctx context.Context) (mcp.Result, error) { return next(ctx, method, request) })
	}
}

// rule returns the rule of the tool that is called. A tool that the server does not have passes.
func (g *Guard) rule(ctx context.Context, req *mcp.CallToolRequest, next mcp.MethodHandler) (Rule, error) {
	if rule := g.kit.Named(req.Params.Name); rule != ByHints {
		return rule, nil
	}
	list := mcp.ListToolsRequest{Session: req.Session, Extra: req.Extra, Params: new(mcp.ListToolsParams)}
	for {
		result, err := next(ctx, "tools/list", &list)
		if err != nil {
			return Pass, err
		}
		page, ok := result.(*mcp.ListToolsResult)
		if !ok {
			return Pass, errors.New("mcpidem: middleware answers tools/list with another type of result")
		}
		for _, tool := range page.Tools {
			if tool.Name == req.Params.Name {
				rule, _ := g.kit.Rule(describe(tool), g.own(tool))
				return rule, nil
			}
		}
		if page.NextCursor == "" {
			return Pass, nil
		}
		list.Params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
}

// own returns what the service's function says about a tool.
func (g *Guard) own(tool *mcp.Tool) Rule {
	if g.config.Rule == nil {
		return ByHints
	}
	return g.config.Rule(tool)
}

func describe(tool *mcp.Tool) *mcpkit.Tool {
	t := &mcpkit.Tool{Name: tool.Name}
	if a := tool.Annotations; a != nil {
		t.ReadOnly, t.Idempotent = a.ReadOnlyHint, a.IdempotentHint
	}
	return t
}

// call runs a call once.
func (g *Guard) call(ctx context.Context, req *mcp.CallToolRequest, rule Rule, next func(context.Context) (mcp.Result, error),
) (mcp.Result, error) {
	call := mcpkit.Call{Tool: req.Params.Name, Rule: rule, Meta: req.Params.Meta[KeyMeta], Arguments: req.Params.Arguments,
		User: func() (string, error) { return g.user(ctx, req) }}
	if req.Extra != nil {
		call.Header = req.Extra.Header.Values(mcpkit.KeyHeader)
	}
	if g.config.Key != nil {
		call.Key = func() string { return g.config.Key(ctx, req) }
	}
	if g.config.Authorize != nil {
		call.Authorize = func() error { return g.config.Authorize(ctx, req) }
	}
	var result mcp.Result
	var err error
	stored, refusal := g.kit.Do(ctx, &call, func(ctx context.Context) mcpkit.Outcome {
		result, err = next(ctx)
		return g.outcome(result, err)
	})
	if stored != nil {
		replayed, fault := decode(stored, req)
		if fault == nil {
			return replayed, nil
		}
		refusal = core.NewRefusal(codes.ResultUnavailable, fault)
	}
	if refusal != nil {
		meta, text := g.kit.Refused(refusal, &call)
		return refused(meta, text, refusal, req)
	}
	return result, err
}

var errUser = errors.New("mcpidem: the call has no user")

func (g *Guard) user(ctx context.Context, req *mcp.CallToolRequest) (user string, err error) {
	token, byHTTP := auth.TokenInfoFromContext(ctx), ctx.Value(http.ServerContextKey) != nil
	if req.Extra != nil { // it is nil over SSE, where only the context tells
		token, byHTTP = req.Extra.TokenInfo, byHTTP || req.Extra.Header != nil
	}
	switch {
	case g.config.SharedByAllCallers:
		return "", nil
	case g.config.User != nil:
		user, err = g.config.User(ctx, req)
	case token != nil:
		user = token.UserID
		if issuer, _ := token.Extra["iss"].(string); issuer != "" && user != "" {
			user = issuer + " " + user // a URL has no blank
		}
	case !byHTTP: // the process is that of one user
		return "", nil
	}
	if user == "" && err == nil {
		err = errUser
	}
	return user, err
}

// Check reports how the tools of a server are guarded, for a log at the start. Call it when they are all added. It asks the server for its
// tools, as a client in the process; middleware that demands more of a client makes it fail. The error joins a *[core.ConfigError] for each
// name in [Config].Tools that is not a tool of the server.
func (g *Guard) Check(server *mcp.Server) (*Report, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ours, theirs := mcp.NewInMemoryTransports()
	serving, err := server.Connect(ctx, theirs, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = serving.Close() }() // it is in the process
	client, err := mcp.NewClient(&mcp.Implementation{Name: "mcpidem"}, nil).Connect(ctx, ours, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	var described []mcpkit.Tool
	var tools []*mcp.Tool
	for tool, err := range client.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		described, tools = append(described, *describe(tool)), append(tools, tool)
	}
	return g.kit.Check(described, func(i int) Rule { return g.own(tools[i]) })
}
