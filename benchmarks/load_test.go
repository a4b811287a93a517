package benchmarks

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/internal/backend"
)

// loadService, in the environment of a test process, makes it a service of BenchmarkLoad: "bare", "memory", or the
// URL of a Redis. loadPrefix is what its stored keys begin with.
const loadService, loadPrefix = "IDEM_BENCH_SERVICE", "IDEM_BENCH_PREFIX"

// serveLoad serves POST /operations, and GET /executions, how often that has run, until its standard input ends.
func serveLoad(on string) error {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	var handlers []gin.HandlerFunc
	if on != "bare" {
		var records store.Store
		var err error
		if on == "memory" {
			records, err = memstore.New(memstore.Options{MaxEntries: 20_000_000, MaxBytes: 8 << 30})
		} else {
			records, err = redisstore.NewURL(on)
		}
		if err != nil {
			return err
		}
		policy := core.ClientKey()
		policy.Retention = time.Minute
		engine := core.MustNew(core.Config{Store: records, Prefix: os.Getenv(loadPrefix), User: core.UserFromHeader("X-User")})
		handlers = append(handlers, ginidem.New(engine.MustGuard(policy)))
	}
	var executions atomic.Int64
	r.POST("/operations", append(handlers, func(c *gin.Context) {
		drain := make([]byte, len(body))
		if _, err := io.ReadFull(c.Request.Body, drain); err != nil {
			c.String(http.StatusBadRequest, err.Error())
			return
		}
		// No two executions answer alike.
		c.String(http.StatusCreated, "%d of %d", executions.Add(1), os.Getpid())
	})...)
	r.GET("/executions", func(c *gin.Context) { c.String(http.StatusOK, "%d", executions.Load()) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go http.Serve(listener, r)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startLoadService starts a service in a process of its own and returns its address.
func startLoadService(tb testing.TB, on, prefix string) string {
	c := exec.CommandContext(tb.Context(), os.Args[0])
	c.Env = append(os.Environ(), loadService+"="+on, loadPrefix+"="+prefix)
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	require.NoError(tb, err)
	stdout, err := c.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, c.Start())
	tb.Cleanup(func() {
		stdin.Close()
		_ = c.Wait() // it may have been killed with the benchmark
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(tb, err, "the service does not listen")
	return strings.TrimSpace(addr)
}

// load is what is sent to services: b.N requests.
type load struct {
	bare       bool     // nothing guards the services
	addrs      []string // behind one store
	prefix     string   // of the client keys
	duplicates float64  // the share of requests that ask again for one of the latest 1024 operations
	rate       float64  // how many requests are due in a second (an open loop); 0: when there is an answer (a closed one)

	mu                  sync.Mutex
	operations          []loadOperation
	replayed, conflicts int
}

// loadOperation is what was asked for and answered under one key.
type loadOperation struct {
	asked, first int
	answer       string
}

// next returns the number of the operation to ask for.
func (l *load) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.operations)
	if n > 0 && mathrand.Float64() < l.duplicates {
		n -= 1 + mathrand.IntN(min(n, 1024))
	} else {
		l.operations = append(l.operations, loadOperation{})
	}
	l.operations[n].asked++
	return n
}

// answered says what is wrong with an answer: nil, if nothing is.
func (l *load) answered(n int, r *fasthttp.Response) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, replayed := &l.operations[n], string(r.Header.Peek(core.ReplayedHeader)) == "true"
	switch status := r.StatusCode(); {
	case status == http.StatusConflict && o.asked > 1 && len(r.Header.Peek("Retry-After")) > 0:
		l.conflicts++
		return nil
	case status != http.StatusCreated || l.bare && replayed:
		return fmt.Errorf("operation %d was answered with %d (replayed: %t): %s", n, status, replayed, r.Body())
	case l.bare:
		return nil
	case replayed:
		l.replayed++
	default:
		o.first++
	}
	if o.answer == "" {
		o.answer = string(r.Body())
	}
	if o.first > 1 || o.answer != string(r.Body()) {
		return fmt.Errorf("operation %d has %d answers that are no replay, %q and %q", n, o.first, o.answer, r.Body())
	}
	return nil
}

// loadClient returns a client with one connection.
func loadClient(addr string) *fasthttp.HostClient {
	return &fasthttp.HostClient{
		Addr: addr, MaxConns: 1, ReadTimeout: 30 * time.Second, MaxIdleConnDuration: 500 * time.Millisecond,
		Dial: func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }, // fasthttp's own leaves a goroutine behind
	}
}

// run sends n requests over 64 connections, each of which is one request at a time, and returns how long each took, in
// ascending order: in an open loop from when it was due. It fails unless each operation was carried out exactly
// once, by the services' own count, and each answer was the first one, the same again, or a 409.
func (l *load) run(ctx context.Context, n int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	due := make(chan time.Time)
	go func() {
		defer close(due)
		start := time.Now()
		for i := range n {
			at := start
			if l.rate > 0 {
				at = start.Add(time.Duration(float64(i) / l.rate * float64(time.Second)))
				sleep(time.Until(at))
			}
			select {
			case due <- at:
			case <-ctx.Done():
				return
			}
		}
	}()
	var wg sync.WaitGroup
	took := make([][]time.Duration, callers)
	for i := range took {
		wg.Go(func() {
			client := loadClient(l.addrs[i%len(l.addrs)])
			defer client.CloseIdleConnections()
			var request fasthttp.Request
			var response fasthttp.Response
			request.SetRequestURI("http://" + client.Addr + "/operations")
			request.Header.SetMethod(http.MethodPost)
			request.Header.SetContentType("application/json")
			request.Header.Set("X-User", "ann")
			order := cargo{body: slices.Clone(body), numberAt: nonceAt}
			for from := range due {
				if l.rate == 0 {
					from = time.Now()
				}
				number := l.next()
				order.write(number)
				request.SetBodyRaw(order.body)
				request.Header.Set(core.DefaultKeyHeader, l.prefix+strconv.Itoa(number))
				err := client.Do(&request, &response)
				took[i] = append(took[i], time.Since(from))
				if err == nil {
					err = l.answered(number, &response)
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	executions, want := 0, len(l.operations)
	if l.bare {
		want = n
	}
	for _, addr := range l.addrs {
		client := loadClient(addr)
		_, text, err := client.Get(nil, "http://"+addr+"/executions")
		client.CloseIdleConnections()
		here, wrong := strconv.Atoi(string(text))
		if err = errors.Join(err, wrong); err != nil {
			return nil, err
		}
		executions += here
	}
	if executions != want {
		return nil, fmt.Errorf("%d operations were carried out %d times", want, executions)
	}
	return slices.Sorted(slices.Values(slices.Concat(took...))), nil
}

// sleep sleeps for d. time.Sleep wakes up to a millisecond late in a process that is idle, as long as an answer takes;
// where there is something more exact, it takes its place.
var sleep = time.Sleep

// BenchmarkLoad is a service on Gin under load over TCP, in a process of its own, or in two behind one Redis. An open loop is
// due half of what the closed one before it reached.
func BenchmarkLoad(b *testing.B) {
	for _, store := range []string{"bare", "memory", "redis2"} {
		for _, duplicates := range []int{0, 10, 90} {
			reached := 0.0
			for _, loop := range []string{"closed", "open"} {
				if store == "bare" && (loop == "open" || duplicates > 0) { // where a duplicate is a request like any other
					continue
				}
				b.Run(fmt.Sprintf("gin/%s/%s/duplicates=%d", store, loop, duplicates), func(b *testing.B) {
					prefix := "load:" + rand.Text()[:12] + ":"
					l := &load{bare: store == "bare", prefix: prefix, duplicates: float64(duplicates) / 100}
					if store == "redis2" {
						url := backend.Redis(b)
						l.addrs = []string{startLoadService(b, url, prefix), startLoadService(b, url, prefix)}
					} else {
						l.addrs = []string{startLoadService(b, store, prefix)}
					}
					if loop == "open" {
						l.rate = max(100, reached/2)
					}
					b.ResetTimer()
					took, err := l.run(b.Context(), b.N)
					b.StopTimer()
					require.NoError(b, err)
					rate := float64(b.N) / b.Elapsed().Seconds()
					if loop == "closed" {
						reached = rate
					} else {
						b.ReportMetric(l.rate, "due/s")
					}
					b.ReportMetric(0, "ns/op") // it is the rate's inverse
					b.ReportMetric(rate, "req/s")
					for _, q := range []float64{50, 99, 99.9} {
						b.ReportMetric(float64(took[int(float64(len(took)-1)*q/100)]), fmt.Sprintf("p%v-ns", q))
					}
					b.ReportMetric(float64(l.replayed), "replayed")
					b.ReportMetric(float64(l.conflicts), "conflicts")
				})
			}
		}
	}
}

// What is carried out twice is found: by a service without a guard, and by two whose stores know nothing of each other.
func TestLoadNoticesWhatIsDoneTwice(t *testing.T) {
	for _, services := range [][]string{{"bare"}, {"memory", "memory"}} {
		l := &load{duplicates: 0.5}
		for _, on := range services {
			l.addrs = append(l.addrs, startLoadService(t, on, "load:"))
		}
		_, err := l.run(t.Context(), 1000)
		require.Error(t, err)
	}
}
