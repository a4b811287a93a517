package mcptest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/auth"
	gomcp "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/mcpgoidem"
	"github.com/idem-go/idem/mcpidem"
)

func goText(text string) *gomcp.CallToolResult {
	return &gomcp.CallToolResult{Content: []gomcp.Content{&gomcp.TextContent{Text: text}}}
}

func mcpgoText(text string) *mcp.CallToolResult { return mcp.NewToolResultText(text) }

func listen(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

// Without a function, the user is the token's, with its issuer; who calls over HTTP without one is nobody.
func TestTokenUser(t *testing.T) {
	engine, s := idemtest.New(t, core.Config{}), newShop()
	c := config{}
	c.Name = "shop"
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		info := &auth.TokenInfo{UserID: token[:3], Expiration: time.Now().Add(time.Hour)}
		if issuer := token[3:]; issuer != "" {
			info.Extra = map[string]any{"iss": issuer}
		}
		return info, nil
	}
	handler := serveGoSDK(engine.Engine, c, s).http(false)
	url := listen(t, auth.RequireBearerToken(verify, nil)(handler))
	replayed := func(token string) bool {
		h := &header{fields: http.Header{"Authorization": {"Bearer " + token}}}
		client := must(connectGoSDK(t, url, &http.Client{Transport: h}, "", false))
		g := must(client.call(t.Context(), &params{Name: "order", Arguments: json.RawMessage(`{"item":"tea"}`), Meta: key("k-1")}))
		require.Empty(t, g.refused())
		return g.replayed()
	}
	for _, token := range []string{"ann", "bob", "annhttps://a.example", "annhttps://b.example"} {
		require.False(t, replayed(token), token)
		require.True(t, replayed(token), token)
	}
	t.Run("SSE", func(t *testing.T) { // of which the SDK shows neither header fields nor tokens in a call
		srv := gomcp.NewServer(&gomcp.Implementation{Name: "shop", Version: "1"}, nil)
		srv.AddReceivingMiddleware(mcpidem.MustNew(engine.Engine, mcpidem.Config{Name: "sse"}).Middleware)
		srv.AddTool(&gomcp.Tool{Name: "pay", InputSchema: json.RawMessage(anything)},
			func(context.Context, *gomcp.CallToolRequest) (*gomcp.CallToolResult, error) {
				return goText("paid"), nil
			})
		handler := gomcp.NewSSEHandler(func(*http.Request) *gomcp.Server { return srv }, nil)
		ask := func(url, token string) *got {
			transport := &gomcp.SSEClientTransport{Endpoint: url, HTTPClient: &http.Client{
				Transport: &header{fields: http.Header{"Authorization": {"Bearer " + token}}}}}
			client := must(gomcp.NewClient(&gomcp.Implementation{Name: "agent"}, nil).Connect(t.Context(), transport, nil))
			t.Cleanup(func() { _ = client.Close() })
			return must(goClient{client}.call(t.Context(), &params{Name: "pay", Arguments: json.RawMessage(`{}`), Meta: key("k-1")}))
		}
		url := listen(t, auth.RequireBearerToken(verify, nil)(handler))
		require.False(t, ask(url, "ann").replayed())
		require.False(t, ask(url, "bob").replayed())
		require.True(t, ask(url, "ann").replayed())
		require.Equal(t, "user_missing", ask(listen(t, handler), "ann").refused())
	})
	for _, sdk := range sdks {
		client := must(connectGoSDK(t, listen(t, sdk.serve(engine.Engine, c, s).http(false)), http.DefaultClient, "", false))
		g := must(client.call(t.Context(), &params{Name: "order", Arguments: json.RawMessage(`{"item":"tea"}`), Meta: key("k-1")}))
		require.Equal(t, "user_missing", g.refused(), sdk.name)
	}
}

// Over stdio the process is one user's.
func TestStdio(t *testing.T) {
	for _, sdk := range sdks {
		for name, connect := range clients {
			t.Run(sdk.name+" "+name, func(t *testing.T) {
				client := must(connect(t, "", nil, sdk.name, false))
				ask := func(ctx context.Context, tool, arguments string) *got {
					g, err := client.call(ctx, &params{Name: tool, Arguments: json.RawMessage(arguments)})
					if err != nil {
						return new(got)
					}
					return g
				}
				require.Equal(t, "<order> 1 & tea", ask(t.Context(), "order", `{"item":"tea","key":"k-1"}`).text())
				require.True(t, ask(t.Context(), "order", `{"item":"tea","key":"k-1"}`).replayed())
				require.Equal(t, "key_reused", ask(t.Context(), "order", `{"item":"milk","key":"k-1"}`).refused())
				require.Equal(t, "paid 1", ask(t.Context(), "pay", `{"item":"tea","key":"k-2"}`).text())
				require.True(t, ask(t.Context(), "pay", `{"item":"tea","key":"k-2"}`).replayed())

				ctx, leave := context.WithCancel(t.Context())
				left := make(chan *got)
				go func() { left <- ask(ctx, "gate", `{"item":"tea","key":"k-3"}`) }()
				require.Equal(t, "somebody waits", ask(t.Context(), "await", `{"item":""}`).text())
				leave()
				require.Empty(t, (<-left).text())
				go func() { left <- ask(t.Context(), "gate", `{"item":"tea","key":"k-3"}`) }()
				ask(t.Context(), "open", `{"item":""}`)
				again := <-left
				require.Equal(t, "through 1", again.text())
				require.True(t, again.replayed())
				var runs map[string]int
				require.NoError(t, json.Unmarshal([]byte(ask(t.Context(), "counts", `{"item":""}`).text()), &runs))
				require.Equal(t, map[string]int{"order": 1, "asked": 1, "pay": 1, "gate": 1}, runs)
			})
		}
	}
}

// The SDK shows the calls of task tools to no middleware. An ordinary tool that is called as a task is guarded within that.
func TestMCPGoTasks(t *testing.T) {
	engine, s := idemtest.New(t, core.Config{}), newShop()
	guard := mcpgoidem.MustNew(engine.Engine, mcpgoidem.Config{Name: "shop", Tools: map[string]mcpgoidem.Rule{"export": mcpgoidem.Pass}})
	srv := server.NewMCPServer("shop", "1", server.WithTaskCapabilities(true, true, true),
		server.WithToolHandlerMiddleware(guard.Middleware))
	for _, name := range []string{"ship", "export"} {
		srv.AddTaskTool(mcp.NewTool(name, mcp.WithTaskSupport(mcp.TaskSupportRequired)),
			func(context.Context, mcp.CallToolRequest) (*mcp.CreateTaskResult, error) { return nil, nil })
	}
	_, err := guard.Check(srv)
	require.ErrorContains(t, err, "ship is a task tool")
	require.NotContains(t, err.Error(), "export")

	c := config{}
	c.Name, c.SharedByAllCallers = "shop", true
	serving := serveMCPGo(engine.Engine, c, s)
	client := must(connectMCPGo(t, listen(t, serving.http(true)), http.DefaultClient, "", true)).(mcpgoClient)
	for i := range 2 {
		answer := must(client.GetTransport().SendRequest(t.Context(), transport.JSONRPCRequest{JSONRPC: "2.0",
			ID: mcp.NewRequestId(100 + i), Method: "tools/call", Params: map[string]any{"name": "order",
				"arguments": map[string]any{"item": "tea"}, "_meta": key("k-1"), "task": map[string]any{}}}))
		require.Nil(t, answer.Error)
		var created mcp.CreateTaskResult
		require.NoError(t, json.Unmarshal(answer.Result, &created))
		result := must(client.TaskResult(t.Context(), mcp.TaskResultRequest{Params: mcp.TaskResultParams{TaskId: created.Task.TaskId}}))
		require.Contains(t, string(must(json.Marshal(result))), "order\\u003e 1")
	}
	require.Equal(t, 1, s.counts()["order"])
}

// A tool that mcp-go has for one session is guarded, too.
func TestToolsOfASession(t *testing.T) {
	engine := idemtest.New(t, core.Config{})
	guard := mcpgoidem.MustNew(engine.Engine, mcpgoidem.Config{Name: "shop", SharedByAllCallers: true})
	srv := server.NewMCPServer("shop", "1", server.WithToolCapabilities(true), server.WithToolHandlerMiddleware(guard.Middleware))
	srv.AddTool(mcp.NewTool("learn"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcpgoText("learnt"), srv.AddSessionTool(server.ClientSessionFromContext(ctx).SessionID(), mcp.NewTool("pay"),
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return mcpgoText("paid"), nil })
	})
	client := must(connectMCPGo(t, listen(t, server.NewStreamableHTTPServer(srv)), http.DefaultClient, "", true))
	must(client.call(t.Context(), &params{Name: "learn", Arguments: json.RawMessage(`{}`)}))
	for n := range 2 {
		g := must(client.call(t.Context(), &params{Name: "pay", Arguments: json.RawMessage(`{}`), Meta: key("k-1")}))
		require.Equal(t, n > 0, g.replayed())
	}
}

// A tool that the server learns of later is guarded, too.
func TestToolsComeAndGo(t *testing.T) {
	engine := idemtest.New(t, core.Config{})
	guard := mcpidem.MustNew(engine.Engine, mcpidem.Config{Name: "shop", SharedByAllCallers: true})
	srv := gomcp.NewServer(&gomcp.Implementation{Name: "shop", Version: "1"}, nil)
	srv.AddReceivingMiddleware(guard.Middleware)
	url := listen(t, gomcp.NewStreamableHTTPHandler(func(*http.Request) *gomcp.Server { return srv }, nil))
	client := must(connectGoSDK(t, url, http.DefaultClient, "", false))
	for _, readOnly := range []bool{true, false} {
		srv.AddTool(&gomcp.Tool{Name: "set", InputSchema: json.RawMessage(`{"type":"object"}`),
			Annotations: &gomcp.ToolAnnotations{ReadOnlyHint: readOnly}},
			func(context.Context, *gomcp.CallToolRequest) (*gomcp.CallToolResult, error) {
				return goText("set"), nil
			})
		var g *got
		for range 2 {
			g = must(client.call(t.Context(), &params{Name: "set", Arguments: json.RawMessage(`{}`), Meta: key("k-1")}))
		}
		require.Equal(t, !readOnly, g.replayed())
	}
}

// Arguments that fit the schema, and not the tool's type, are no call either.
func TestArgumentsOfAnotherType(t *testing.T) {
	engine := idemtest.New(t, core.Config{})
	guard := mcpidem.MustNew(engine.Engine, mcpidem.Config{Name: "shop", SharedByAllCallers: true,
		Failed: func(*gomcp.CallToolResult) bool { return false }})
	srv := gomcp.NewServer(&gomcp.Implementation{Name: "shop", Version: "1"}, nil)
	srv.AddReceivingMiddleware(guard.Middleware)
	gomcp.AddTool(srv, &gomcp.Tool{Name: "pay", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *gomcp.CallToolRequest, struct{ Amount int }) (*gomcp.CallToolResult, any, error) {
			return goText("paid"), nil, nil
		})
	gomcp.AddTool(srv, &gomcp.Tool{Name: "refund", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *gomcp.CallToolRequest, struct{}) (*gomcp.CallToolResult, any, error) {
			var receipt struct{ ID int }
			return nil, nil, json.Unmarshal([]byte(`{"ID":"r-1"}`), &receipt) // what the bank has answered
		})
	url := listen(t, gomcp.NewStreamableHTTPHandler(func(*http.Request) *gomcp.Server { return srv }, nil))
	client := must(connectGoSDK(t, url, http.DefaultClient, "", false))
	for n := range 2 {
		g := must(client.call(t.Context(), &params{Name: "refund", Arguments: json.RawMessage(`{}`), Meta: key("k-1")}))
		require.Equal(t, n > 0, g.replayed(), "a tool that has begun")
	}
	for _, amount := range []string{`"five"`, `"five"`, `99999999999999999999`, `5`} {
		g := must(client.call(t.Context(), &params{Name: "pay", Arguments: json.RawMessage(`{"Amount":` + amount + `}`), Meta: key("k-1")}))
		require.False(t, g.replayed())
		require.Empty(t, g.refused())
		require.Equal(t, amount != "5", g.IsError)
	}
}

// Outer middleware finds the refusal, with its cause.
func TestOuterMiddleware(t *testing.T) {
	engine := idemtest.New(t, core.Config{})
	guard := mcpidem.MustNew(engine.Engine, mcpidem.Config{Name: "shop", SharedByAllCallers: true})
	srv := gomcp.NewServer(&gomcp.Implementation{Name: "shop", Version: "1"}, nil)
	var seen error
	outer := func(next gomcp.MethodHandler) gomcp.MethodHandler {
		return func(ctx context.Context, method string, r gomcp.Request) (gomcp.Result, error) {
			result, err := next(ctx, method, r)
			if called, ok := result.(*gomcp.CallToolResult); ok {
				seen = called.GetError()
			}
			return result, err
		}
	}
	srv.AddReceivingMiddleware(outer, guard.Middleware)
	gomcp.AddTool(srv, &gomcp.Tool{Name: "pay"},
		func(context.Context, *gomcp.CallToolRequest, struct{}) (*gomcp.CallToolResult, any, error) {
			return goText("paid"), nil, nil
		})
	url := listen(t, gomcp.NewStreamableHTTPHandler(func(*http.Request) *gomcp.Server { return srv }, nil))
	client := must(connectGoSDK(t, url, http.DefaultClient, "", false))
	engine.Fail(idemtest.Acquire)
	must(client.call(t.Context(), &params{Name: "pay", Arguments: json.RawMessage(`{}`), Meta: key("k-1")}))
	require.ErrorIs(t, seen, codes.StoreUnavailable)
	require.ErrorIs(t, seen, idemtest.ErrFailing)
}
