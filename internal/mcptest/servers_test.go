package mcptest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	gomcp "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/adapterkit/mcpkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/mcpgoidem"
	"github.com/idem-go/idem/mcpidem"
)

// config is what both Configs have in common.
type config struct {
	mcpkit.Config
	rule      func(name string) mcpkit.Rule
	key       func(h http.Header) string
	user      func(h http.Header) (string, error)
	failed    func(isError bool) bool
	authorize func(h http.Header) error
	bare      bool // there is no guard
}

// serving is a server: its handler of HTTP, its stdio, and its guard's Check.
type serving struct {
	http  func(sessions bool) http.Handler
	stdio func() error
	check func() (*mcpkit.Report, error)
}

// sdks are the SDKs, as servers.
var sdks = []struct {
	name  string
	serve func(engine *core.Engine, c config, s *shop) serving
}{{"go-sdk", serveGoSDK}, {"mcp-go", serveMCPGo}}

func headerOf(r *gomcp.CallToolRequest) http.Header {
	if r.Extra == nil {
		return nil
	}
	return r.Extra.Header
}

func serveGoSDK(engine *core.Engine, c config, s *shop) serving {
	own := mcpidem.Config{Name: c.Name, Policy: c.Policy, Tools: c.Tools, Default: c.Default, PassIdempotent: c.PassIdempotent,
		Argument: c.Argument, Window: c.Window, SharedByAllCallers: c.SharedByAllCallers, Linger: c.Linger}
	if c.rule != nil {
		own.Rule = func(t *gomcp.Tool) mcpidem.Rule { return c.rule(t.Name) }
	}
	if c.key != nil {
		own.Key = func(_ context.Context, r *gomcp.CallToolRequest) string { return c.key(headerOf(r)) }
	}
	if c.user != nil {
		own.User = func(_ context.Context, r *gomcp.CallToolRequest) (string, error) { return c.user(headerOf(r)) }
	}
	if c.failed != nil {
		own.Failed = func(r *gomcp.CallToolResult) bool { return c.failed(r.IsError) }
	}
	if c.authorize != nil {
		own.Authorize = func(_ context.Context, r *gomcp.CallToolRequest) error { return c.authorize(headerOf(r)) }
	}
	guard := mcpidem.MustNew(engine, own)
	srv := gomcp.NewServer(&gomcp.Implementation{Name: "shop", Version: "1"}, &gomcp.ServerOptions{PageSize: 4})
	if !c.bare {
		srv.AddReceivingMiddleware(guard.Middleware)
	}
	for _, t := range s.tools() {
		gomcp.AddTool(srv, &gomcp.Tool{Name: t.name, Description: "does it", InputSchema: json.RawMessage(schema),
			Annotations: &gomcp.ToolAnnotations{ReadOnlyHint: t.readOnly, IdempotentHint: t.idempotent}},
			func(ctx context.Context, r *gomcp.CallToolRequest, in map[string]any) (*gomcp.CallToolResult, any, error) {
				c := call{arguments: in, state: r.Params.RequestState}
				if answer, ok := r.Params.InputResponses["confirm"].(*gomcp.ElicitResult); ok {
					c.confirmed = answer.Action
				}
				a := t.handle(ctx, &c)
				switch {
				case a.err != nil:
					return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: a.err.Error()}
				case a.asks != "":
					return &gomcp.CallToolResult{RequestState: a.state, InputRequests: gomcp.InputRequestMap{"confirm": &gomcp.ElicitParams{
						Mode: "form", Message: a.asks, RequestedSchema: json.RawMessage(anything)}}}, nil, nil
				}
				result := goText(a.text)
				result.Meta, result.IsError = a.meta, a.isError
				if a.structured != "" {
					result.StructuredContent = json.RawMessage(a.structured)
				}
				return result, nil, nil
			})
	}
	srv.AddPrompt(&gomcp.Prompt{Name: "greet"}, func(context.Context, *gomcp.GetPromptRequest) (*gomcp.GetPromptResult, error) {
		return &gomcp.GetPromptResult{Description: "hello"}, nil
	})
	srv.AddResource(&gomcp.Resource{URI: "shop://stock", Name: "stock"},
		func(context.Context, *gomcp.ReadResourceRequest) (*gomcp.ReadResourceResult, error) {
			return &gomcp.ReadResourceResult{Contents: []*gomcp.ResourceContents{{URI: "shop://stock", Text: "full"}}}, nil
		})
	return serving{
		http: func(sessions bool) http.Handler {
			return gomcp.NewStreamableHTTPHandler(func(*http.Request) *gomcp.Server { return srv },
				&gomcp.StreamableHTTPOptions{Stateless: !sessions, PropagateRequestCancellation: true})
		},
		stdio: func() error { return srv.Run(context.Background(), &gomcp.StdioTransport{}) },
		check: func() (*mcpkit.Report, error) { return guard.Check(srv) },
	}
}

func serveMCPGo(engine *core.Engine, c config, s *shop) serving {
	own := mcpgoidem.Config{Name: c.Name, Policy: c.Policy, Tools: c.Tools, Default: c.Default, PassIdempotent: c.PassIdempotent,
		Argument: c.Argument, Window: c.Window, SharedByAllCallers: c.SharedByAllCallers, Linger: c.Linger}
	if c.rule != nil {
		own.Rule = func(t *mcp.Tool) mcpgoidem.Rule { return c.rule(t.Name) }
	}
	if c.key != nil {
		own.Key = func(_ context.Context, r mcp.CallToolRequest) string { return c.key(r.Header) }
	}
	if c.user != nil {
		own.User = func(_ context.Context, r mcp.CallToolRequest) (string, error) { return c.user(r.Header) }
	}
	if c.failed != nil {
		own.Failed = func(r *mcp.CallToolResult) bool { return c.failed(r.IsError) }
	}
	if c.authorize != nil {
		own.Authorize = func(_ context.Context, r mcp.CallToolRequest) error { return c.authorize(r.Header) }
	}
	guard := mcpgoidem.MustNew(engine, own)
	srv := server.NewMCPServer("shop", "1", server.WithRecovery(), server.WithInputSchemaValidation(), server.WithElicitation(),
		server.WithTaskCapabilities(true, true, true), server.WithPaginationLimit(4))
	if !c.bare {
		srv.Use(guard.Middleware)
	}
	for _, t := range s.tools() {
		described := mcp.NewToolWithRawSchema(t.name, "does it", json.RawMessage(schema))
		described.Annotations = mcp.ToolAnnotation{ReadOnlyHint: &t.readOnly, IdempotentHint: &t.idempotent}
		if t.name == "order" {
			described.Execution = &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}
		}
		srv.AddTool(described, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			c := call{arguments: r.GetArguments(), state: r.Params.RequestState}
			if answer := server.ElicitationResponse(r.Params.InputResponses, "confirm"); answer != nil {
				c.confirmed = string(answer.Action)
			}
			a := t.handle(ctx, &c)
			switch {
			case a.err != nil:
				return nil, a.err
			case a.asks != "":
				return server.NewInputRequestBuilder(a.state).Elicit("confirm",
					mcp.ElicitationParams{Message: a.asks, RequestedSchema: json.RawMessage(anything)}).ToolResult(), nil
			}
			result := &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(a.text)}, IsError: a.isError}
			if a.meta != nil {
				result.Meta = mcp.NewMetaFromMap(a.meta)
			}
			if a.structured != "" {
				result.StructuredContent = json.RawMessage(a.structured)
			}
			return result, nil
		})
	}
	srv.AddPrompt(mcp.NewPrompt("greet"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return mcp.NewGetPromptResult("hello", nil), nil
	})
	srv.AddResource(mcp.NewResource("shop://stock", "stock"),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "shop://stock", Text: "full"}}, nil
		})
	return serving{
		http: func(sessions bool) http.Handler {
			return server.NewStreamableHTTPServer(srv, server.WithStateLess(!sessions))
		},
		stdio: func() error { return server.ServeStdio(srv) },
		check: func() (*mcpkit.Report, error) { return guard.Check(srv) },
	}
}
