package mcpidem_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/mcpidem"
)

type payment struct {
	Amount   int    `json:"amount"`
	ActionID string `json:"action_id,omitempty"`
}

// pay is a tool as it is without idem.
func pay(_ context.Context, _ *mcp.CallToolRequest, in payment) (*mcp.CallToolResult, any, error) {
	fmt.Println("paid", in.Amount)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "receipt-17"}}}, nil, nil
}

func Example() {
	engine := core.MustNew(core.Config{}) // with a Service, and a Store that all instances share
	guard := mcpidem.MustNew(engine, mcpidem.Config{Name: "shop", Argument: "action_id"})
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	server.AddReceivingMiddleware(guard.Middleware)
	mcp.AddTool(server, &mcp.Tool{Name: "pay", Description: "Pays."}, pay)

	ctx := context.Background()
	ours, theirs := mcp.NewInMemoryTransports() // in place of a network
	if _, err := server.Connect(ctx, theirs, nil); err != nil {
		fmt.Println(err)
		return
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx, ours, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for _, amount := range []int{5, 5, 700} { // a payment, its retry, and another payment under the same key
		result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "pay", Arguments: payment{amount, "a-1"}})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result.Meta[mcpidem.ReplayedMeta], result.Meta[mcpidem.RefusedMeta])
	}
	// Output:
	// paid 5
	// <nil> <nil>
	// true <nil>
	// <nil> key_reused
}

// The smallest server, as docs/agents.md shows it.
func Example_server() {
	var store store.Store
	_ = func() error {
		engine, err := core.New(core.Config{Service: "shop", Store: store}) // all instances share the store
		if err != nil {
			return err
		}
		guard, err := mcpidem.New(engine, mcpidem.Config{Name: "shop", Argument: "action_id"})
		if err != nil {
			return err
		}
		server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
		server.AddReceivingMiddleware(guard.Middleware)
		mcp.AddTool(server, &mcp.Tool{Name: "pay", Description: "Pays."}, pay)
		report, err := guard.Check(server) // when all tools are added
		if err != nil {
			return err
		}
		slog.Info("guarded", "tools", report)
		return server.Run(context.Background(), &mcp.StdioTransport{})
	}
}

// A harness gives each use of a tool an id, and sends it again with the use.
func ExampleConfig_key() {
	_ = mcpidem.Config{
		Name: "shop",
		Key: func(_ context.Context, call *mcp.CallToolRequest) string {
			id, _ := call.Params.Meta["example.com/tool-use-id"].(string)
			return id
		},
	}
}
