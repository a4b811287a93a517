package mcpgoidem_test

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/mcpgoidem"
)

// pay is a tool as it is without idem.
func pay(_ context.Context, call mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	fmt.Println("paid", call.GetInt("amount", 0))
	return mcp.NewToolResultText("receipt-17"), nil
}

func Example() {
	engine := core.MustNew(core.Config{}) // with a Service, and a Store that all instances share
	guard := mcpgoidem.MustNew(engine, mcpgoidem.Config{Name: "shop", Argument: "action_id"})
	s := server.NewMCPServer("shop", "1", server.WithRecovery(), server.WithToolHandlerMiddleware(guard.Middleware))
	s.AddTool(mcp.NewTool("pay", mcp.WithNumber("amount"), mcp.WithString("action_id",
		mcp.Description(mcpgoidem.KeyDescription))), pay)

	ctx := context.Background()
	c, err := client.NewInProcessClient(s) // in place of a network
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{}); err != nil {
		fmt.Println(err)
		return
	}
	for _, amount := range []int{5, 5, 700} { // a payment, its retry, and another payment under the same key
		var call mcp.CallToolRequest
		call.Params.Name, call.Params.Arguments = "pay", map[string]any{"amount": amount, "action_id": "a-1"}
		result, err := c.CallTool(ctx, call)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result.Meta.GetMetaField(mcpgoidem.ReplayedMeta), result.Meta.GetMetaField(mcpgoidem.RefusedMeta))
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
		guard, err := mcpgoidem.New(engine, mcpgoidem.Config{Name: "shop", Argument: "action_id"})
		if err != nil {
			return err
		}
		s := server.NewMCPServer("shop", "1", server.WithRecovery(), server.WithToolHandlerMiddleware(guard.Middleware))
		s.AddTool(mcp.NewTool("pay"), pay)
		if _, err := guard.Check(s); err != nil { // when all tools are added
			return err
		}
		return server.ServeStdio(s)
	}
}
