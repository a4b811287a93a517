package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/mcpidem"
)

// lost are the answers that the network loses, of those to the calls of each tool: the second to pay is the receipt, after the question.
var lost = map[string]string{"books": "xx", "order": "xx", "pay": ".x", "bind": ""}

// play calls each tool as a harness does that gets no answer: again, with the same arguments and the same key, until there is a result.
func play(ctx context.Context, handler http.Handler, books *bookshop, out io.Writer) error {
	server := httptest.NewServer(handler)
	defer server.Close()
	network := new(lossy)
	client := mcp.NewClient(&mcp.Implementation{Name: "script", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			fmt.Fprintf(out, "        the person is asked: %s Yes.\n", r.Params.Message)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		}})
	connect := func() (*mcp.ClientSession, error) {
		return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: server.URL, MaxRetries: -1,
			HTTPClient: &http.Client{Transport: network, Timeout: 800 * time.Millisecond}}, nil)
	}
	ask := func(tool string, arguments map[string]any) (*mcp.CallToolResult, error) {
		session, err := connect()
		if err != nil {
			return nil, err
		}
		defer func() { _ = session.Close() }() // after a call without an answer, its connection is of no use
		return session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	}
	for _, tool := range []string{"books", "order", "pay", "bind"} {
		fmt.Fprintln(out, tool)
		arguments := map[string]any{}
		if tool != "books" {
			arguments = map[string]any{"book": "Emma", "action_id": "agent-7/" + tool}
		}
		network.lost.Store(lost[tool])
		for answered := false; !answered; {
			result, err := ask(tool, arguments)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				fmt.Fprintln(out, "        no answer: the same call again")
				continue
			}
			words := result.Content[0].(*mcp.TextContent).Text
			refused, _ := result.Meta[mcpidem.RefusedMeta].(string)
			answered = refused == ""
			switch {
			case !answered:
				fmt.Fprintf(out, "        refused (%s): %s\n", refused, words)
				time.Sleep(300 * time.Millisecond)
			case result.Meta[mcpidem.ReplayedMeta] == true:
				fmt.Fprintf(out, "        %s (replayed)\n", words)
			default:
				fmt.Fprintf(out, "        %s\n", words)
			}
		}
	}
	_, err := fmt.Fprintf(out, "ledger  %s\n", books)
	return err
}

// lossy is a network that loses answers to calls of tools: those whose letter in lost is an x.
type lossy struct{ lost atomic.Value }

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Header.Get("Mcp-Method") != "tools/call" {
		return response, err
	}
	fates := l.lost.Load().(string)
	if fates == "" {
		return response, nil
	}
	l.lost.Store(fates[1:])
	if fates[0] != 'x' {
		return response, nil
	}
	_, _ = io.Copy(io.Discard, response.Body) // the server has answered
	_ = response.Body.Close()
	return nil, errors.New("the answer was lost")
}
