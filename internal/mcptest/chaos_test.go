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
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestChaos has clients that lose 30 % of their requests and answers, and servers that are killed. Each call is answered, and each effect
// is there once.
func TestChaos(t *testing.T) {
	calls := 150
	if testing.Short() {
		calls = 60
	}
	if os.Getenv("IDEM_LONG") != "" {
		calls = 500
	}
	for _, sdk := range sdks {
		t.Run(sdk.name+" Redis", func(t *testing.T) { chaos(t, sdk.name, backend.StartRedis(t).URL(), calls) })
		t.Run(sdk.name+" SQLite", func(t *testing.T) {
			chaos(t, sdk.name, "sqlite:"+filepath.Join(t.TempDir(), "idem.db"), calls)
		})
	}
}

// serveChaos is the server that is killed. It tells its parent that it listens by a line.
func serveChaos(sdk string) error {
	records, err := openStore(os.Getenv("IDEM_MCPTEST_STORE"))
	if err != nil {
		return err
	}
	engine, err := core.New(core.Config{Service: "mcptest", Store: records})
	if err != nil {
		return err
	}
	c := config{}
	c.Name, c.SharedByAllCallers = "shop", true
	c.Policy.Lease, c.Policy.Duplicate = 500*time.Millisecond, core.Wait(2*time.Second)
	s := newShop()
	s.more = []tool{{name: "transfer", handle: func(ctx context.Context, c *call) said {
		id := core.RunFrom(ctx).ID().String() // the same at each attempt
		if core.RunFrom(ctx).ID() == (store.ID{}) {
			id = cryptorand.Text() // nobody guards it
		}
		response, err := http.PostForm(os.Getenv("IDEM_MCPTEST_BANK"), url.Values{"id": {id}, "item": {fmt.Sprint(c.arguments["item"])}})
		if err != nil {
			return said{err: err}
		}
		_ = response.Body.Close()
		return said{text: id}
	}}}
	for _, one := range sdks {
		if one.name != sdk {
			continue
		}
		l, err := net.Listen("tcp", os.Getenv("IDEM_MCPTEST_ADDR"))
		if err != nil {
			return err
		}
		fmt.Println("listening")
		return http.Serve(l, one.serve(engine, c, s).http(false))
	}
	return errors.New("unknown SDK " + sdk)
}

func openStore(name string) (store.Store, error) {
	if strings.HasPrefix(name, "sqlite:") {
		return sqlstore.NewURL(context.Background(), name, sqlstore.Config{})
	}
	return redisstore.NewURL(name, redisstore.Config{})
}

// bank counts the effects: the operations that have paid for an item.
type bank struct {
	mu    sync.Mutex
	paid  map[string]map[string]int // by item and operation
	posts int
}

func (b *bank) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	item, id := r.FormValue("item"), r.FormValue("id")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paid[item] == nil {
		b.paid[item] = make(map[string]int)
	}
	b.paid[item][id]++
	b.posts++
}

// lossy is a network that loses 15 % of the requests and 15 % of the answers.
type lossy struct{ lost atomic.Int64 }

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	fate := rand.IntN(100)
	if fate < 15 {
		l.lost.Add(1)
		return nil, errors.New("the request was lost")
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && fate >= 85 {
		l.lost.Add(1)
		_, err = io.Copy(io.Discard, response.Body) // the server has answered
		return nil, errors.Join(errors.New("the answer was lost"), err, response.Body.Close())
	}
	return response, err
}

func chaos(t *testing.T, sdk, storeURL string, calls int) {
	ledger := &bank{paid: make(map[string]map[string]int)}
	money := httptest.NewServer(ledger)
	defer money.Close()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "IDEM_MCPTEST_CHAOS="+sdk, "IDEM_MCPTEST_STORE="+storeURL, "IDEM_MCPTEST_ADDR="+addr,
			"IDEM_MCPTEST_BANK="+money.URL)
		cmd.Stderr = os.Stderr
		out := must(cmd.StdoutPipe())
		require.NoError(t, cmd.Start())
		_, err := io.ReadFull(out, make([]byte, len("listening\n")))
		require.NoError(t, err, "the server has not started")
		return cmd
	}
	server := start()
	kill := func() {
		assert.NoError(t, server.Process.Kill())
		_ = server.Wait() // says that it was killed
	}
	defer func() { kill() }()

	const workers, rounds = 8, 4
	network := new(lossy)
	var answered, replayed atomic.Int64
	milestone := make(chan struct{}, rounds)
	work := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var c connection
			for i := range work {
				item := fmt.Sprint("item ", i)
				g := insist(t, sdk, "http://"+addr, network, &c, item)
				if !assert.NotNil(t, g) {
					continue
				}
				if g.replayed() {
					replayed.Add(1)
				}
				ledger.mu.Lock()
				assert.Len(t, ledger.paid[item], 1, item)
				assert.Contains(t, ledger.paid[item], g.text(), "its own result")
				ledger.mu.Unlock()
				if answered.Add(1)%int64(calls/(rounds+1)) == 0 {
					select {
					case milestone <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	killed, kills := make(chan struct{}), 0
	stop := make(chan struct{})
	go func() {
		defer close(killed)
		for {
			select {
			case <-milestone:
				kill()
				server = start()
				kills++
			case <-stop:
				return
			}
		}
	}()
	for i := range calls {
		work <- i
	}
	close(work)
	wg.Wait()
	close(stop)
	<-killed
	require.EqualValues(t, calls, answered.Load())
	require.Len(t, ledger.paid, calls)
	require.Positive(t, replayed.Load())
	require.GreaterOrEqual(t, kills, rounds-1)
	t.Logf("%d calls, %d messages lost, %d kills, %d answers replayed, %d posts to the bank", calls, network.lost.Load(), kills,
		replayed.Load(), ledger.posts)
}

// insist calls until there is an answer, as an agent does: with the same key.
func insist(t *testing.T, sdk, url string, network http.RoundTripper, c *connection, item string) *got {
	deadline := time.Now().Add(time.Minute)
	p := params{Name: "transfer", Arguments: json.RawMessage(fmt.Sprintf(`{"item":%q}`, item)), Meta: key(item)}
	for time.Now().Before(deadline) {
		var err error
		if *c == nil {
			if *c, err = clients[sdk](t, url, &http.Client{Transport: network}, "", false); err != nil {
				*c = nil
				time.Sleep(10 * time.Millisecond)
				continue
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		g, err := (*c).call(ctx, &p)
		cancel()
		switch {
		case err != nil:
			*c = nil // the connection may have broken
		case g.refused() != "":
			time.Sleep(10 * time.Millisecond)
		default:
			return g
		}
	}
	return nil
}
