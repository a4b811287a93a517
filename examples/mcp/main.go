// Command mcp is a shop as an MCP server: its tools list books, order one, take the payment (which asks the person first), and bind a book,
// which takes minutes. A call that an agent makes again is done once.
//
//	go run ./examples/mcp                         # over stdio: for an agent on this machine
//	go run ./examples/mcp -addr 127.0.0.1:8080    # over HTTP, at /mcp
//	go run ./examples/mcp -script                 # a client that loses answers on purpose, and the ledger in the end
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/mcpidem"
)

func main() {
	addr := flag.String("addr", "", "`address` of HTTP (default: stdio)")
	records := flag.String("store", "memory", "where `records` are kept: memory, sqlite:FILE, redis://…, postgres://…, mysql://…")
	binding := flag.Duration("binding", 2*time.Minute, "how long it takes to bind a book")
	script := flag.Bool("script", false, "run a scripted client whose answers get lost, and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var out io.Writer
	if *script {
		out, *binding = os.Stdout, 2*time.Second
	}
	if err := run(ctx, *addr, *records, *binding, out); err != nil && ctx.Err() == nil {
		log.Fatal("mcp: ", err) // to stderr: stdout is the protocol's
	}
}

// run serves, or runs the script if it has somewhere to write.
func run(ctx context.Context, addr, records string, binding time.Duration, script io.Writer) error {
	store, err := shop.OpenStore(shop.Options{Store: records})
	if err != nil {
		return err
	}
	defer store.Close()
	level := slog.LevelInfo
	if script != nil {
		level = slog.LevelError
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	config := core.Config{Service: "shop-mcp", Store: store.Store, Observe: core.LogEvents(logger, slog.LevelInfo)}
	engine, err := core.New(config)
	if err != nil {
		return err
	}

	// A tool that changes something needs a key, which the model makes: the argument action_id. A duplicate of one that runs waits for half
	// a second here, so that a reader sees what the model is told then; 30 s is the default.
	guard, err := mcpidem.New(engine, mcpidem.Config{Name: "shop", Argument: "action_id", Default: mcpidem.Required, User: user,
		Policy: core.TaskPolicy{Duplicate: core.Wait(500 * time.Millisecond)}, Linger: 5 * time.Minute})
	if err != nil {
		return err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	server.AddReceivingMiddleware(guard.Middleware)
	books := newBookshop(binding)
	books.addTo(server)
	report, err := guard.Check(server)
	if err != nil {
		return err
	}
	logger.Info("guarded", "tools", report)

	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	switch {
	case script != nil:
		return play(ctx, handler, books, script)
	case addr == "":
		return server.Run(ctx, &mcp.StdioTransport{})
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	logger.Info("listening", "url", "http://"+addr+"/mcp")
	s := http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = s.Close()
	}()
	return s.ListenAndServe()
}

// user is the X-User that the login in front of the shop sets, and must not let through from outside. Over stdio there is one user.
func user(_ context.Context, call *mcp.CallToolRequest) (string, error) {
	if call.Extra == nil || call.Extra.Header == nil {
		return "you", nil
	}
	return cmp.Or(call.Extra.Header.Get("X-User"), "guest"), nil
}

// bookshop is the shop as it would be without idem. Its ledger counts what was really done.
type bookshop struct {
	binding time.Duration
	mu      sync.Mutex
	ledger  map[string]int
}

func newBookshop(binding time.Duration) *bookshop {
	return &bookshop{binding: binding, ledger: make(map[string]int)}
}

// action is what the tools that change something are called with.
type action struct {
	Book     string `json:"book"`
	ActionID string `json:"action_id,omitempty"`
}

func (b *bookshop) addTo(server *mcp.Server) {
	schema, err := jsonschema.For[action](nil)
	if err != nil {
		panic(err) // the type is ours
	}
	schema.Properties["action_id"].Description = mcpidem.KeyDescription
	add := func(name, description string, handler mcp.ToolHandlerFor[action, any]) {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: description, InputSchema: schema}, handler)
	}
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(server, &mcp.Tool{Name: "books", Description: "Lists the books.", Annotations: reads},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return text("Emma, Middlemarch, Ulysses"), nil, nil
		})
	add("order", "Orders a book.", func(_ context.Context, _ *mcp.CallToolRequest, in action) (*mcp.CallToolResult, any, error) {
		return text(fmt.Sprintf("order %d: %s", b.done("ordered"), in.Book)), nil, nil
	})
	add("pay", "Pays for a book. The person is asked first.", b.pay)
	add("bind", "Has a book bound in leather. It takes minutes.", b.bind)
}

// pay asks the person, by a result that the client answers with a second call.
func (b *bookshop) pay(_ context.Context, call *mcp.CallToolRequest, in action) (*mcp.CallToolResult, any, error) {
	answer, asked := call.Params.InputResponses["confirm"].(*mcp.ElicitResult)
	switch {
	case !asked:
		b.done("asked the person")
		yesOrNo := &jsonschema.Schema{Type: "object"}
		question := &mcp.ElicitParams{Mode: "form", Message: "Pay for " + in.Book + "?", RequestedSchema: yesOrNo}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"confirm": question}}, nil, nil
	case answer.Action != "accept":
		return text("not paid: the person does not want to"), nil, nil
	}
	return text(fmt.Sprintf("receipt %d: %s", b.done("paid"), in.Book)), nil, nil
}

// bind takes longer than clients wait. Its context outlives them.
func (b *bookshop) bind(ctx context.Context, _ *mcp.CallToolRequest, in action) (*mcp.CallToolResult, any, error) {
	n := b.done("bound")
	select {
	case <-time.After(b.binding):
		return text(fmt.Sprintf("binding %d: %s", n, in.Book)), nil, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

func text(t string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}
}

// done notes what was done, and returns how often it was.
func (b *bookshop) done(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger[what]++
	return b.ledger[what]
}

// String returns the ledger.
func (b *bookshop) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(b.ledger)) {
		lines = append(lines, fmt.Sprintf("%s: %d", what, b.ledger[what]))
	}
	return strings.Join(lines, ", ")
}
