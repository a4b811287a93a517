package benchmarks

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
)

const tokenLength = 75

// tokenForm is a form of 200 bytes, with room for a token.
var tokenForm = func() cargo {
	body := "nonce2=0000000000&" + core.TokenField + "=" + strings.Repeat("t", tokenLength) + "&fill="
	return cargo{"application/x-www-form-urlencoded", []byte(body + strings.Repeat("x", 200-len(body))), len("nonce2="), whole}
}()

// tokenWay is a way to bring the key of an operation.
type tokenWay struct {
	name string
	cargo
	token bool                            // the key is a token
	put   func(c *httpClient, key string) // into the request
}

func inHeader(name string) func(*httpClient, string) {
	return func(c *httpClient, key string) { c.keys[0] = key; c.header[name] = c.keys }
}

var tokenWays = []tokenWay{
	{"client-key", order, false, inHeader(core.DefaultKeyHeader)},
	{"header", order, true, inHeader(core.TokenHeader)},
	{"client-key-form", tokenForm, false, inHeader(core.DefaultKeyHeader)},
	{"form", tokenForm, true, func(c *httpClient, key string) {
		copy(c.cargo.body[bytes.Index(c.cargo.body, []byte(core.TokenField))+len(core.TokenField)+1:], key)
	}},
}

// policy is that of the way, with tokens.
func (w tokenWay) policy(tokens *core.Tokens) core.Policy {
	if !w.token {
		return core.ClientKey()
	}
	p := core.OneShotToken(tokens)
	p.Name = "order"
	return p
}

func newTokens() *core.Tokens {
	// So that none expires, however long a benchmark takes.
	return core.MustTokens(core.TokenConfig{Secrets: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}, Lifetime: 23 * time.Hour})
}

// BenchmarkToken is what a one-shot token costs: to issue it, alone and by the handler of net/http, and to use it
// on net/http with the store in memory, first (it is checked, and the handler runs) and again (it is
// checked, and the response replayed), beside the same request with a client key.
func BenchmarkToken(b *testing.B) {
	b.Run("issue/core", func(b *testing.B) {
		on := openMemory(b, 1)
		g := on.engine().MustGuard(tokenWay{token: true}.policy(newTokens()))
		r := core.Request{Headers: alice{}}
		one, err := g.NewToken(b.Context(), &r)
		require.NoError(b, err)
		require.Len(b, one, tokenLength)
		token := ""
		b.ReportAllocs()
		for b.Loop() {
			if token, err = g.NewToken(b.Context(), &r); err != nil {
				b.Fatal(err)
			}
		}
		require.Len(b, token, tokenLength)
		require.NotEqual(b, one, token)
		require.Zero(b, on.records(b))
	})
	b.Run("issue/nethttp", func(b *testing.B) {
		on := openMemory(b, 1)
		mux := http.NewServeMux()
		mux.Handle("POST /orders", httpidem.IssueToken(on.engine().MustGuard(tokenWay{token: true}.policy(newTokens()))))
		c := newHTTPClient(mux)
		got := c.ask("", 0)
		require.Equal(b, 200, got.status)
		require.Len(b, got.body, len(`{"token":""}`)+tokenLength)
		require.NotEqual(b, got, c.ask("", 0))
		b.ReportAllocs()
		for b.Loop() {
			if status := c.send("", 0); status != 200 {
				b.Fatalf("was answered with %d", status)
			}
		}
		require.Zero(b, on.records(b))
	})
	for _, way := range tokenWays {
		b.Run(way.name+"/first", func(b *testing.B) { way.measure(b, true, wantCreated) })
		b.Run(way.name+"/replay", func(b *testing.B) { way.measure(b, false, wantReplayed) })
	}
}

// measure checks that requests are answered as wanted, and times them. Each is another operation if distinct is
// set; else they are all the same one, which has been carried out before.
func (w tokenWay) measure(b *testing.B, distinct bool, want answer) {
	require.Len(b, w.body, 200)
	n := rehearsed + b.N
	on := openMemory(b, n)
	g := on.engine().MustGuard(w.policy(newTokens()))
	h := &handler{}
	c := frameworkNamed(b, "nethttp").mount(h, g).client().(*httpClient)
	c.carry(w.cargo)
	step, operations := 0, 1
	if distinct {
		step, operations = 1, n
	}
	keys := w.keys(b, g, operations)
	if !distinct {
		w.put(c, keys(0))
		require.Equal(b, wantCreated, c.ask("", 0))
		h.executed = 0
	}
	for i := range rehearsed {
		w.put(c, keys(i*step))
		require.Equal(b, want, c.ask("", i*step))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := rehearsed; i < n; i++ {
		w.put(c, keys(i*step))
		if status := c.send("", i*step); status != want.status {
			b.Fatalf("was answered with %d", status)
		}
	}
	b.StopTimer()
	require.Equal(b, n*step, h.executed)
	require.Equal(b, operations, on.records(b))
}

// keys returns n keys of the way, packed as newClientKeys packs them.
func (w tokenWay) keys(b *testing.B, g *core.Guard, n int) func(i int) string {
	if !w.token {
		return newClientKeys(n).at
	}
	var all strings.Builder
	all.Grow(n * tokenLength)
	for range n {
		token, err := g.NewToken(b.Context(), &core.Request{Headers: alice{}})
		require.NoError(b, err)
		all.WriteString(token)
	}
	text := all.String()
	return func(i int) string { return text[i*tokenLength:][:tokenLength] }
}

// alice is the header of a request of hers.
type alice struct{}

func (alice) Header(name string, _ int) (value string, lines int) {
	if name != "X-User" {
		return "", 0
	}
	return "alice", 1
}
