package mcptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/idemtest"
)

// TestMain is also a server over stdio and one that is killed.
func TestMain(m *testing.M) {
	for _, s := range sdks {
		var err error
		switch s.name {
		case os.Getenv("IDEM_MCPTEST_STDIO"):
			config := config{}
			config.Name, config.Argument = "shop", "key"
			err = s.serve(core.MustNew(core.Config{}), config, newShop()).stdio()
		case os.Getenv("IDEM_MCPTEST_CHAOS"):
			err = serveChaos(s.serve)
		default:
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A rig is a server and a client of one combination.
type rig struct {
	*testing.T
	engine *idemtest.Engine
	shop   *shop
	server string                 // the SDK
	serve  func(c config) serving // another server of it
	again  func() connection      // another client
	url    string
	check  serving
	client connection
	header *header
}

// header sends header fields with each request.
type header struct {
	mu     sync.Mutex
	fields http.Header
}

func (h *header) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	h.mu.Lock()
	for name, values := range h.fields {
		r.Header[name] = values
	}
	h.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

func (h *header) set(name string, values ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fields[name] = values
}

// byHeader returns the user of a call.
func byHeader(h http.Header) (string, error) {
	if user := h.Get("X-User"); user != "root" {
		return user, nil
	}
	return "root", errors.New("root does not order")
}

// each runs a case with the servers of both SDKs, with and without sessions, and the clients of both.
func each(t *testing.T, c config, run func(r *rig)) {
	if c.Name == "" {
		c.Name = "shop"
	}
	if c.user == nil && !c.SharedByAllCallers {
		c.user = byHeader
	}
	for _, sdk := range sdks {
		for _, sessions := range []bool{true, false} {
			for name, connect := range clients {
				mode := map[bool]string{true: "sessions", false: "stateless"}[sessions]
				t.Run(sdk.name+" "+mode+" "+name, func(t *testing.T) {
					r := &rig{T: t, engine: idemtest.New(t, core.Config{}), shop: newShop(), server: sdk.name,
						header: &header{fields: http.Header{"X-User": {"ann"}}}}
					r.again = func() connection { return must(connect(t, r.url, &http.Client{Transport: r.header}, "", sessions)) }
					r.serve = func(c config) serving {
						s := sdk.serve(r.engine.Engine, c, r.shop)
						r.url = listen(t, s.http(sessions))
						return s
					}
					r.check = r.serve(c)
					r.client = r.again()
					run(r)
				})
			}
		}
	}
}

// key is the _meta of a call with a key.
func key(key any) map[string]any { return map[string]any{"io.github.idem-go/idempotency-key": key} }

// ask calls a tool. An error of the protocol is nil, and logged.
func (r *rig) ask(tool, item string, meta map[string]any) *got {
	r.Helper()
	return r.send(r.Context(), tool, fmt.Sprintf(`{"item":%q}`, item), meta)
}

func (r *rig) send(ctx context.Context, tool, arguments string, meta map[string]any) *got {
	g, err := r.client.call(ctx, &params{Name: tool, Arguments: json.RawMessage(arguments), Meta: meta})
	if err != nil {
		r.Log(err)
		return nil
	}
	return g
}

func (r *rig) ran(tool string, n int) {
	r.Helper()
	require.Equal(r, n, r.shop.counts()[tool], tool)
}

// post sends a tools/call of a protocol's version as it is, and returns the result as it came. session is that of an older version.
func (r *rig) post(version, session string, p *params) json.RawMessage {
	r.Helper()
	if version == modern {
		meta := map[string]any{"io.modelcontextprotocol/protocolVersion": modern,
			"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{}}}
		for k, v := range p.Meta {
			meta[k] = v
		}
		with := *p
		with.Meta, p = meta, &with
	}
	return r.rpc(version, session, "tools/call", p)
}

func (r *rig) rpc(version, session, method string, p any) json.RawMessage {
	r.Helper()
	body := must(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 7, "method": method, "params": p}))
	request := must(http.NewRequestWithContext(r.Context(), http.MethodPost, r.url, bytes.NewReader(body)))
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": version, "Mcp-Session-Id": session, "Mcp-Method": method, "X-User": "ann"} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	if call, ok := p.(*params); ok {
		request.Header.Set("Mcp-Name", call.Name)
	}
	response := must(http.DefaultClient.Do(request))
	defer response.Body.Close()
	text := string(must(io.ReadAll(response.Body)))
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		_, text, _ = strings.Cut(text, "data: {")
		text = "{" + strings.SplitN(text, "\n", 2)[0]
	}
	var message struct{ Result, Error json.RawMessage }
	require.NoError(r, json.Unmarshal([]byte(text), &message), "%d %s", response.StatusCode, text)
	require.Empty(r, message.Error)
	return message.Result
}
