package benchmarks

import (
	"context"
	"fmt"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	gomcp "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/mcpgoidem"
	"github.com/idem-go/idem/mcpidem"
)

// mcpOrder is what the tool of BenchmarkMCP is called with.
type mcpOrder struct {
	Sku      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// BenchmarkMCP is what a guard adds to a call of a tool: over the go-sdk's transport in memory, with its client, and to mcp-go's handling
// of a message. The server has twenty tools.
func BenchmarkMCP(b *testing.B) {
	for _, sdk := range []struct {
		name string
		open func(b *testing.B, guarded bool, ran *int) func(key string) error
	}{{"go-sdk", openGoSDK}, {"mcp-go", openMCPGo}} {
		for _, what := range []string{"bare", "first", "replay"} {
			b.Run(sdk.name+"/"+what, func(b *testing.B) {
				ran := 0
				call := sdk.open(b, what != "bare", &ran)
				keys := newClientKeys(b.N)
				want := b.N
				if what == "replay" {
					want = 1
					if err := call(keys.at(0)); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					if what == "replay" {
						i = 0
					}
					if err := call(keys.at(i)); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if ran != want {
					b.Fatalf("ran %d times, not %d", ran, want)
				}
			})
		}
	}
}

const tools = 20

func openGoSDK(b *testing.B, guarded bool, ran *int) func(key string) error {
	s := gomcp.NewServer(&gomcp.Implementation{Name: "shop", Version: "1"}, nil)
	if guarded {
		s.AddReceivingMiddleware(mcpidem.MustNew(openMemory(b, b.N).engine(), mcpidem.Config{Name: "shop"}).Middleware)
	}
	for i := range tools {
		gomcp.AddTool(s, &gomcp.Tool{Name: fmt.Sprint("order-", i)},
			func(context.Context, *gomcp.CallToolRequest, mcpOrder) (*gomcp.CallToolResult, any, error) {
				*ran++
				return &gomcp.CallToolResult{Content: []gomcp.Content{&gomcp.TextContent{Text: "order-17"}}}, nil, nil
			})
	}
	ctx := b.Context()
	ours, theirs := gomcp.NewInMemoryTransports()
	if _, err := s.Connect(ctx, theirs, nil); err != nil {
		b.Fatal(err)
	}
	client, err := gomcp.NewClient(&gomcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx, ours, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	return func(key string) error {
		_, err := client.CallTool(ctx, &gomcp.CallToolParams{Name: "order-7", Arguments: mcpOrder{Sku: "4006381333931", Quantity: 2},
			Meta: gomcp.Meta{mcpidem.KeyMeta: key}})
		return err
	}
}

func openMCPGo(b *testing.B, guarded bool, ran *int) func(key string) error {
	s := server.NewMCPServer("shop", "1")
	if guarded {
		s.Use(mcpgoidem.MustNew(openMemory(b, b.N).engine(), mcpgoidem.Config{Name: "shop"}).Middleware)
	}
	for i := range tools {
		s.AddTool(mcp.NewTool(fmt.Sprint("order-", i), mcp.WithString("sku"), mcp.WithNumber("quantity")),
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				*ran++
				return mcp.NewToolResultText("order-17"), nil
			})
	}
	ctx := b.Context()
	return func(key string) error {
		message := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"order-7",` +
			`"arguments":{"sku":"4006381333931","quantity":2},"_meta":{"` + mcpgoidem.KeyMeta + `":"` + key + `"}}}`
		if answer, ok := s.HandleMessage(ctx, []byte(message)).(mcp.JSONRPCError); ok {
			return fmt.Errorf("%s", answer.Error.Message)
		}
		return nil
	}
}
