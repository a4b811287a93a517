package mcptest

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	gomcp "github.com/modelcontextprotocol/go-sdk/mcp"
)

// got is a result as a client has it.
type got struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	Meta       map[string]any  `json:"_meta"`
	Type       string          `json:"resultType"`
	State      string          `json:"requestState"`
}

func (g *got) text() string {
	if len(g.Content) == 0 {
		return ""
	}
	return g.Content[0].Text
}

func (g *got) replayed() bool  { return g.Meta["io.github.idem-go/replayed"] == true }
func (g *got) refused() string { code, _ := g.Meta["io.github.idem-go/refused"].(string); return code }

// params are those of a tools/call.
type params struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      map[string]any  `json:"_meta,omitempty"`
	State     string          `json:"requestState,omitempty"`
	Responses json.RawMessage `json:"inputResponses,omitempty"`
}

// A connection is a client that has connected. It confirms what it is asked.
type connection interface {
	call(ctx context.Context, p *params) (*got, error)
	lists(ctx context.Context) ([]any, error)
}

// clients are the SDKs, as clients over HTTP and stdio. The URL is empty for stdio. With legacy they open a session, as the protocol had
// them before 2026-07-28: mcp-go would not by itself, though a server of the go-sdk that has sessions demands it.
var clients = map[string]func(tb testing.TB, url string, h *http.Client, child string, legacy bool) (connection, error){
	"go-sdk": connectGoSDK, "mcp-go": connectMCPGo,
}

type goClient struct{ *gomcp.ClientSession }

func connectGoSDK(tb testing.TB, url string, h *http.Client, child string, legacy bool) (connection, error) {
	c := gomcp.NewClient(&gomcp.Implementation{Name: "agent", Version: "1"}, &gomcp.ClientOptions{
		ElicitationHandler: func(context.Context, *gomcp.ElicitRequest) (*gomcp.ElicitResult, error) {
			return &gomcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		}})
	var t gomcp.Transport = &gomcp.StreamableClientTransport{Endpoint: url, HTTPClient: h, MaxRetries: -1}
	if url == "" {
		t = &gomcp.CommandTransport{Command: command(child)}
	}
	var options gomcp.ClientSessionOptions
	if legacy {
		options.ProtocolVersion = lastWithSessions
	}
	session, err := c.Connect(tb.Context(), t, &options)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _ = session.Close() })
	return goClient{session}, nil
}

func (c goClient) call(ctx context.Context, p *params) (*got, error) {
	result, err := c.CallTool(ctx, &gomcp.CallToolParams{Meta: p.Meta, Name: p.Name, Arguments: p.Arguments})
	return as(result, err)
}

func (c goClient) lists(ctx context.Context) ([]any, error) {
	tools, err := c.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	prompt, err := c.GetPrompt(ctx, &gomcp.GetPromptParams{Name: "greet"})
	if err != nil {
		return nil, err
	}
	resource, err := c.ReadResource(ctx, &gomcp.ReadResourceParams{URI: "shop://stock"})
	return []any{tools, prompt, resource}, err
}

// as reads a client's result, unless err is one.
func as(result any, err error) (*got, error) {
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	g := new(got)
	return g, json.Unmarshal(b, g)
}

type mcpgoClient struct{ *client.Client }

type confirms struct{}

func (confirms) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	yes := mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{}}
	return &mcp.ElicitationResult{ElicitationResponse: yes}, nil
}

func connectMCPGo(tb testing.TB, url string, h *http.Client, child string, legacy bool) (connection, error) {
	var t transport.Interface
	var err error
	if url == "" {
		cmd := command(child)
		t = transport.NewStdio(cmd.Path, cmd.Env)
	} else if t, err = transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(h)); err != nil {
		return nil, err
	}
	c := client.NewClient(t, client.WithElicitationHandler(confirms{}))
	if err := c.Start(tb.Context()); err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _ = c.Close() })
	request := mcp.InitializeRequest{}
	request.Params.ClientInfo = mcp.Implementation{Name: "agent", Version: "1"}
	if legacy {
		request.Params.ProtocolVersion = lastWithSessions
	}
	if _, err := c.Initialize(tb.Context(), request); err != nil {
		return nil, err
	}
	return mcpgoClient{c}, nil
}

func (c mcpgoClient) call(ctx context.Context, p *params) (*got, error) {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = p.Name, p.Arguments
	if p.Meta != nil {
		meta := make(map[string]any)
		for k, v := range p.Meta {
			meta[k] = v
		}
		request.Params.Meta = mcp.NewMetaFromMap(meta)
	}
	result, err := c.CallTool(ctx, request)
	return as(result, err)
}

func (c mcpgoClient) lists(ctx context.Context) ([]any, error) {
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	var ask mcp.GetPromptRequest
	ask.Params.Name = "greet"
	prompt, err := c.GetPrompt(ctx, ask)
	if err != nil {
		return nil, err
	}
	var read mcp.ReadResourceRequest
	read.Params.URI = "shop://stock"
	resource, err := c.ReadResource(ctx, read)
	return []any{tools, prompt, resource}, err
}

// command is this test as a server over stdio, see TestMain.
func command(sdk string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "IDEM_MCPTEST_STDIO="+sdk)
	return cmd
}

// Versions of the protocol.
const (
	lastWithSessions = "2025-11-25"
	modern           = "2026-07-28"
)

// must is for what can't fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
