package mcptest

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestChaos has clients that lose 30 % of their requests and answers, and a server that is killed while calls run. Each call is
// answered, and each effect is there once. The other stores, and other faults of processes, are in internal/faults.
func TestChaos(t *testing.T) {
	calls := 150
	if testing.Short() {
		calls = 60
	}
	if os.Getenv("IDEM_LONG") != "" {
		calls = 500
	}
	for _, sdk := range sdks {
		t.Run(sdk.name, func(t *testing.T) { chaos(t, sdk.name, calls) })
	}
}

// serveChaos is the server that is killed.
func serveChaos(serve func(*core.Engine, config, *shop) serving) error {
	c := config{}
	c.Name, c.SharedByAllCallers = "shop", true
	c.Policy.Lease, c.Policy.Duplicate = 500*time.Millisecond, core.Wait(2*time.Second)
	s := newShop()
	s.more = []tool{{name: "transfer", handle: func(ctx context.Context, c *call) said {
		id := cryptorand.Text() // unless a guard has let it run
		if run := core.RunFrom(ctx); run != nil {
			id = run.ID().String() // the same at each attempt
		}
		response, err := http.PostForm(os.Getenv("IDEM_MCPTEST_BANK"), url.Values{"id": {id}, "item": {fmt.Sprint(c.arguments["item"])}})
		if err != nil {
			return said{err: err}
		}
		_ = response.Body.Close()
		return said{text: id}
	}}}
	records, err := redisstore.NewURL(os.Getenv("IDEM_MCPTEST_STORE"), redisstore.Config{})
	if err != nil {
		return err
	}
	engine := core.MustNew(core.Config{Service: "mcptest", Store: records})
	return http.ListenAndServe(os.Getenv("IDEM_MCPTEST_ADDR"), serve(engine, c, s).http(false))
}

// lossy is a network that loses 15 % of the requests and 15 % of the answers.
type lossy struct{}

func (lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	fate := rand.IntN(100)
	if fate < 15 {
		return nil, errors.New("the request was lost")
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && fate >= 85 {
		_, err = io.Copy(io.Discard, response.Body) // the server has answered
		return nil, errors.Join(errors.New("the answer was lost"), err, response.Body.Close())
	}
	return response, err
}

func chaos(t *testing.T, sdk string, calls int) {
	var mu sync.Mutex
	paid, posts, kills := make(map[string][]string), 0, 0 // by item: the operations that have paid for it
	var server atomic.Pointer[os.Process]
	bank := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		item, id := r.FormValue("item"), r.FormValue("id")
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(paid[item], id) {
			paid[item] = append(paid[item], id)
		}
		if posts++; posts%(calls/5) == 0 && server.Load().Kill() == nil {
			kills++
		}
	}))
	defer bank.Close()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	addr := l.Addr().String()
	require.NoError(t, l.Close())

	ctx, stop := context.WithCancel(t.Context())
	env := append(os.Environ(), "IDEM_MCPTEST_CHAOS="+sdk, "IDEM_MCPTEST_STORE="+backend.StartRedis(t).URL(), "IDEM_MCPTEST_ADDR="+addr,
		"IDEM_MCPTEST_BANK="+bank.URL)
	var servers, workers sync.WaitGroup
	servers.Go(func() {
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env, cmd.Stderr = env, os.Stderr
			if !assert.NoError(t, cmd.Start()) {
				return
			}
			server.Store(cmd.Process)
			_ = cmd.Wait() // says that it was killed
		}
	})
	defer servers.Wait()
	defer stop()

	var replayed atomic.Int64
	work := make(chan string)
	for range 8 {
		workers.Go(func() {
			var c connection
			for item := range work {
				if g := insist(t, sdk, "http://"+addr, &c, item); assert.NotNil(t, g, item) {
					mu.Lock()
					assert.Equal(t, []string{g.text()}, paid[item], "once, and its own result")
					mu.Unlock()
					if g.replayed() {
						replayed.Add(1)
					}
				}
			}
		})
	}
	for i := range calls {
		work <- fmt.Sprint("item ", i)
	}
	close(work)
	workers.Wait()
	require.Len(t, paid, calls)
	require.Positive(t, replayed.Load())
	require.GreaterOrEqual(t, kills, 3)
	t.Logf("%d calls, %d kills, %d answers replayed, %d posts to the bank", calls, kills, replayed.Load(), posts)
}

// insist calls until there is an answer, as an agent does: with the same key.
func insist(t *testing.T, sdk, url string, c *connection, item string) *got {
	p := params{Name: "transfer", Arguments: json.RawMessage(fmt.Sprintf(`{"item":%q}`, item)), Meta: key(item)}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var err error
		if *c == nil {
			if *c, err = clients[sdk](t, url, &http.Client{Transport: lossy{}}, "", false); err != nil {
				*c = nil
				continue
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		g, err := (*c).call(ctx, &p)
		cancel()
		switch {
		case err != nil:
			*c = nil // the connection may have broken
		case g.refused() == "":
			return g
		}
	}
	return nil
}
