package mcpgoidem

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

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
	Key func(ctx context.Context, call mcp.CallToolRequest) string

	// Window is how long a result whose key is made of the arguments ([Arguments]) is kept, from the end of the run. Zero: 1 minute.
	Window time.Duration

	// User returns the caller. An error, or an empty user, refuses a call that has a key; the client does not get the error. It is called
	// concurrently. Nil: calls that came by HTTP and have a key are refused; others are
	// those of one user, because the process is. Users are stored as they are, up to 64 bytes: return no secret.
	User func(ctx context.Context, call mcp.CallToolRequest) (string, error)

	// SharedByAllCallers makes all callers one user, so that each can get any caller's results. It is for HTTP without authentication.
	SharedByAllCallers bool

	// Failed decides whether a result with IsError is a failure, after which the next call runs. Nil: each is. Results that say that
	// the arguments don't fit the schema are in any case. It is called concurrently and must not change the result.
	Failed func(result *mcp.CallToolResult) bool

	// Authorize is called before a stored result is replayed, because the caller may have lost its rights since. An error refuses the
	// replay; the client does not get the error. It is called concurrently. Nil: replays need no permission.
	Authorize func(ctx context.Context, call mcp.CallToolRequest) error

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
	kit, err := mcpkit.New(engine, mcpkit.Config{Package: "mcpgoidem", Name: c.Name, Policy: c.Policy, Tools: c.Tools, Default: c.Default,
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

// Middleware is a [server.ToolHandlerMiddleware]. Mount it inside middleware that recovers panics and logs, which means after it:
//
//	server.NewMCPServer("shop", "1", server.WithRecovery(), server.WithToolHandlerMiddleware(guard.Middleware))
func (g *Guard) Middleware(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		rule := g.rule(ctx, req.Params.Name)
		if rule == Pass {
			return next(ctx, req)
		}
		if req.Params.Task != nil { // the SDK ends a task's context with the answer that has the task's id
			ctx = context.WithoutCancel(ctx)
		}
		return g.call(ctx, req, rule, next)
	}
}

// rule returns the rule of the tool that is called: the session's, or the server's. One that neither has passes.
func (g *Guard) rule(ctx context.Context, name string) Rule {
	if rule := g.kit.Named(name); rule != ByHints {
		return rule
	}
	if session, ok := server.ClientSessionFromContext(ctx).(server.SessionWithTools); ok {
		if tool, ok := session.GetSessionTools()[name]; ok {
			rule, _ := g.kit.Rule(describe(&tool.Tool), g.own(&tool.Tool))
			return rule
		}
	}
	if s := server.ServerFromContext(ctx); s != nil {
		if tool := s.GetTool(name); tool != nil {
			rule, _ := g.kit.Rule(describe(&tool.Tool), g.own(&tool.Tool))
			return rule
		}
	}
	return Pass
}

// own returns what the service's function says about a tool.
func (g *Guard) own(tool *mcp.Tool) Rule {
	if g.config.Rule == nil {
		return ByHints
	}
	return g.config.Rule(tool)
}

func describe(tool *mcp.Tool) *mcpkit.Tool {
	said := func(hint *bool) bool { return hint != nil && *hint }
	return &mcpkit.Tool{Name: tool.Name, ReadOnly: said(tool.Annotations.ReadOnlyHint), Idempotent: said(tool.Annotations.IdempotentHint)}
}

// call runs a call once.
func (g *Guard) call(ctx context.Context, req mcp.CallToolRequest, rule Rule, next server.ToolHandlerFunc) (*mcp.CallToolResult, error) {
	call := mcpkit.Call{Tool: req.Params.Name, Rule: rule, Header: req.Header.Values(mcpkit.KeyHeader),
		Meta: req.Params.Meta.GetMetaField(KeyMeta), User: func() (string, error) { return g.user(ctx, req) }}
	var err error
	if call.Arguments, err = arguments(req); err != nil {
		return nil, err
	}
	if g.config.Key != nil {
		call.Key = func() string { return g.config.Key(ctx, req) }
	}
	if g.config.Authorize != nil {
		call.Authorize = func() error { return g.config.Authorize(ctx, req) }
	}
	var result *mcp.CallToolResult
	stored, refusal := g.kit.Do(ctx, &call, func(ctx context.Context) mcpkit.Outcome {
		result, err = next(ctx, req)
		return g.outcome(result, err)
	})
	if stored != nil {
		replayed, fault := decode(stored)
		if fault == nil {
			return replayed, nil
		}
		refusal = core.NewRefusal(codes.ResultUnavailable, fault)
	}
	if refusal != nil {
		meta, text := g.kit.Refused(refusal, &call)
		refused := mcp.NewToolResultError(text)
		refused.Meta = mcp.NewMetaFromMap(meta)
		return refused, nil
	}
	return result, err
}

// arguments returns the arguments as they were sent.
func arguments(req mcp.CallToolRequest) ([]byte, error) {
	switch raw := req.GetRawArguments().(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return raw, nil
	default:
		return json.Marshal(raw)
	}
}

var errUser = errors.New("mcpgoidem: the call has no user")

func (g *Guard) user(ctx context.Context, req mcp.CallToolRequest) (user string, err error) {
	switch {
	case g.config.SharedByAllCallers:
		return "", nil
	case g.config.User != nil:
		user, err = g.config.User(ctx, req)
	case len(req.Header) == 0: // not by HTTP: the process is that of one user
		return "", nil
	}
	if user == "" && err == nil {
		err = errUser
	}
	return user, err
}

// Check reports how the tools of a server are guarded, for a log at the start. Call it when they are all added. It asks the server for
// its tools, as a client in the process. The error joins a *[core.ConfigError] for each name in [Config].Tools that is not a tool of
// the server, and for each task tool that is not to pass: the SDK shows their calls to no middleware.
func (g *Guard) Check(s *server.MCPServer) (*Report, error) {
	var tools []mcp.Tool
	var described []mcpkit.Tool
	var params mcp.PaginatedParams
	for {
		message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": mcp.MethodToolsList, "params": params})
		if err != nil {
			return nil, err
		}
		answer, ok := s.HandleMessage(context.Background(), message).(mcp.JSONRPCResponse)
		page, isList := answer.Result.(mcp.ListToolsResult)
		if !ok || !isList {
			return nil, errors.New("mcpgoidem: the server does not list its tools")
		}
		for _, tool := range page.Tools {
			t := describe(&tool)
			if s.GetTool(tool.Name) == nil {
				t.Unseen = "is a task tool, whose calls the SDK shows to no middleware: use core.Do in it, and let it Pass"
			}
			tools, described = append(tools, tool), append(described, *t)
		}
		if page.NextCursor == "" {
			return g.kit.Check(described, func(i int) Rule { return g.own(&tools[i]) })
		}
		params.Cursor = page.NextCursor
	}
}
