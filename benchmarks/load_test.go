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
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// loadService, in the environment of a test process, makes it a service of BenchmarkLoad: the name of a framework, and
// "bare", "own", "memory", "unchecked" (in memory, by the key alone), "memory+" and how many records stand there already, or the URL of
// a Redis. loadName is the name of the service to its store. With IDEM_BENCH_PROFILE=FILE it writes a profile of its processor time.
const loadService, loadName = "IDEM_BENCH_SERVICE", "IDEM_BENCH_NAME"

// orders is an operation for many clients at once. No two executions answer alike.
type orders struct{ executed atomic.Int64 }

func (o *orders) create(r io.Reader) []byte {
	own := make([]byte, len(body))
	if _, err := io.ReadFull(r, own); err != nil {
		panic(err)
	}
	return o.answer()
}

func (o *orders) createOf(request interface{ Body() []byte }) []byte {
	if len(request.Body()) != len(body) {
		panic("a part of the body is missing")
	}
	return o.answer()
}

func (o *orders) answer() []byte {
	return fmt.Appendf(nil, `{"order_id":"ord-%d-%d"}`, os.Getpid(), o.executed.Add(1))
}

// serveLoad is a service until its standard input ends. For each line there it prints how often the operation has run, and
// how much processor time the process has used.
func serveLoad(what string) error {
	name, on, _ := strings.Cut(what, " ")
	fw := frameworks[slices.IndexFunc(frameworks, func(fw framework) bool { return fw.name == name })]
	o := &orders{}
	var s service
	switch on {
	case "bare":
		s = fw.mount(o, nil)
	case "own":
		s, _ = fw.own(o)
	default:
		policy := core.ClientKey()
		var records store.Store
		var err error
		switch inMemory, standing, _ := strings.Cut(on, "+"); inMemory {
		case "unchecked":
			policy = core.ClientKey(core.IgnoreFingerprint())
			fallthrough
		case "memory":
			records, err = memstore.New(memstore.Config{MaxEntries: 20_000_000, MaxBytes: 8 << 30})
			if n, _ := strconv.Atoi(standing); err == nil {
				err = stand(records, n)
			}
		default:
			records, err = redisstore.NewURL(on, redisstore.Config{})
		}
		if err != nil {
			return err
		}
		policy.Retention = time.Minute
		engine := core.MustNew(core.Config{
			Store: records, Service: os.Getenv(loadName), User: core.UserFromHeader("X-User"),
			StoreTimeout: time.Minute, // a slow machine is measured, not refused
		})
		s = fw.mount(o, engine.MustGuard(policy))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if file := os.Getenv("IDEM_BENCH_PROFILE"); file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Println(listener.Addr())
	go s.serve(listener)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(o.executed.Load(), int64(processTime()))
	}
	return lines.Err()
}

// stand has n finished operations stand in a store.
func stand(records store.Store, n int) error {
	result := make([]byte, recordResult)
	for i := range n {
		if err := finish(records, i, result, 24*time.Hour); err != nil {
			return err
		}
	}
	return nil
}

// loadProcess is a service in a process of its own.
type loadProcess struct {
	addr string
	ask  io.WriteCloser
	says *bufio.Reader
}

// startLoadService starts a service on half of the cores. The client has the rest.
func startLoadService(tb testing.TB, what, name string) loadProcess {
	c := exec.CommandContext(tb.Context(), os.Args[0])
	c.Env = append(os.Environ(), loadService+"="+what, loadName+"="+name, fmt.Sprint("GOMAXPROCS=", serviceCores()))
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	require.NoError(tb, err)
	c.Cancel, c.WaitDelay = stdin.Close, 10*time.Second
	stdout, err := c.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, c.Start())
	tb.Cleanup(func() {
		stdin.Close()
		_ = c.Wait() // it may have been killed with the benchmark
	})
	p := loadProcess{ask: stdin, says: bufio.NewReader(stdout)}
	_, err = fmt.Fscanln(p.says, &p.addr)
	require.NoError(tb, err, "the service does not listen")
	return p
}

func serviceCores() int { return max(1, runtime.NumCPU()/2) }

// has returns how often the service has carried out an operation, and the processor time that it has used.
func (p loadProcess) has() (executed int, used time.Duration, err error) {
	if _, err = fmt.Fprintln(p.ask); err == nil {
		_, err = fmt.Fscanln(p.says, &executed, (*int64)(&used))
	}
	return executed, used, err
}

// load is what is sent to services.
type load struct {
	way        string        // "bare": nothing guards the services; "own": what guards them does not say that it replays
	services   []loadProcess // behind one store
	prefix     string        // of the client keys
	duplicates float64       // the share of requests that ask again for one of the latest 1024 operations …
	settled    bool          // … that have been answered
	connected  []*loadConnection

	mu                        sync.Mutex
	operations                []loadOperation
	sent, replayed, conflicts int
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
	l.sent++
	n := len(l.operations)
	if n > 0 && mathrand.Float64() < l.duplicates {
		n -= 1 + mathrand.IntN(min(n, 1024))
		for l.settled && n >= 0 && l.operations[n].answer == "" {
			n--
		}
	}
	if n < 0 || n == len(l.operations) {
		n = len(l.operations)
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
	if l.way == "own" {
		replayed = o.answer == string(r.Body())
	}
	switch status := r.StatusCode(); {
	case status == http.StatusConflict && o.asked > 1 && !l.settled && len(r.Header.Peek("Retry-After")) > 0:
		l.conflicts++
		return nil
	case status != http.StatusCreated || l.way == "bare" && replayed:
		return fmt.Errorf("operation %d was answered with %d (replayed: %t): %s", n, status, replayed, r.Body())
	case l.way == "bare":
		o.answer = string(r.Body())
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

// check fails unless each operation has been carried out exactly once, by the services' own count, and each other request
// was a replay or a conflict. It returns the processor time that the services have used.
func (l *load) check() (time.Duration, error) {
	var executed int
	var used time.Duration
	for _, s := range l.services {
		n, cpu, err := s.has()
		if err != nil {
			return 0, err
		}
		executed, used = executed+n, used+cpu
	}
	want := len(l.operations)
	if l.way == "bare" {
		want = l.sent
	}
	if executed != want {
		return 0, fmt.Errorf("%d operations were carried out %d times", want, executed)
	}
	if want+l.replayed+l.conflicts != l.sent {
		return 0, fmt.Errorf("of %d requests, %d were first ones, %d replays and %d conflicts", l.sent, want, l.replayed, l.conflicts)
	}
	return used, nil
}

// loadConnection is a connection that stays open, for one request at a time.
type loadConnection struct {
	net.Conn
	r        *bufio.Reader
	w        *bufio.Writer
	request  fasthttp.Request
	response fasthttp.Response
	order    cargo
	took     []time.Duration
}

// connect opens n connections, until the end of the test.
func (l *load) connect(tb testing.TB, n int) {
	if need := n + 100; need > openFiles() { // on either side, with what else is open
		tb.Skipf("%d connections need %d open files, and the limit is %d (ulimit -Hn)", n, need, openFiles())
	}
	for i := range n {
		addr := l.services[i%len(l.services)].addr
		conn, err := net.Dial("tcp", addr)
		require.NoError(tb, err)
		tb.Cleanup(func() { conn.Close() })
		c := &loadConnection{Conn: conn, r: bufio.NewReader(conn), w: bufio.NewWriter(conn), order: order}
		c.order.body = slices.Clone(order.body)
		c.request.SetRequestURI("/orders")
		c.request.Header.SetHost(addr)
		c.request.Header.SetMethod(http.MethodPost)
		c.request.Header.SetContentType(order.contentType)
		c.request.Header.Set("X-User", "ann")
		l.connected = append(l.connected, c)
	}
}

// send asks for the operation with a number.
func (c *loadConnection) send(key string, number int) error {
	c.order.write(number)
	c.request.SetBodyRaw(c.order.body)
	c.request.Header.Set(core.DefaultKeyHeader, key)
	return errors.Join(c.request.Write(c.w), c.w.Flush(), c.response.Read(c.r))
}

// run sends n requests over all connections, each of which is one request at a time, and returns how long each took, in
// ascending order. With a rate, that many are due in a second (an open loop), and time counts from then; without, a
// request is sent when there is an answer (a closed one).
func (l *load) run(ctx context.Context, n int, rate float64) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left atomic.Int64
	left.Store(int64(n))
	turns := func(yield func(from time.Time) bool) {
		for left.Add(-1) >= 0 && ctx.Err() == nil && yield(time.Now()) {
		}
	}
	if rate > 0 {
		due := make(chan time.Time)
		go func() {
			defer close(due)
			start := time.Now()
			for i := range n {
				at := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
				sleep(time.Until(at))
				select {
				case due <- at:
				case <-ctx.Done():
					return
				}
			}
		}()
		turns = func(yield func(from time.Time) bool) {
			for from := range due {
				if !yield(from) {
					return
				}
			}
		}
	}
	var wg sync.WaitGroup
	for _, c := range l.connected {
		c.took = c.took[:0]
		wg.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })() // so that no other waits for an answer
			for from := range turns {
				number := l.next()
				err := c.send(fmt.Sprintf("%s%0*d", l.prefix, keyLength-len(l.prefix), number), number)
				c.took = append(c.took, time.Since(from))
				if err == nil {
					err = l.answered(number, &c.response)
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
	var took []time.Duration
	for _, c := range l.connected {
		took = append(took, c.took...)
	}
	slices.Sort(took)
	return took, nil
}

// sleep sleeps for d. time.Sleep wakes up to a millisecond late in a process that is idle, as long as an answer takes;
// where there is something more exact, it takes its place.
var sleep = time.Sleep

// BenchmarkLoad is a service under load over TCP, in a process of its own, or in two behind one Redis: each framework bare,
// guarded and with its own idempotency middleware, and Gin by the share of duplicates. An open loop is due half of what
// the closed one before it reached. A service has half of the cores, so that the client is not what is measured: how
// many either has kept busy is reported.
func BenchmarkLoad(b *testing.B) {
	for _, fw := range frameworks {
		ways := []string{"bare", "memory", "redis"}
		if fw.own != nil {
			ways = append(ways, "own", "unchecked")
		}
		for _, way := range ways {
			for _, connections := range []int{64, 1024} {
				benchmarkLoad(b, fw, way, connections, "replays", 10, 0)
			}
		}
	}
	gin := frameworkNamed(b, "gin")
	for _, way := range []string{"memory", "redis2"} {
		for _, duplicates := range []int{0, 10, 90} {
			reached := benchmarkLoad(b, gin, way, 64, "duplicates", duplicates, 0)
			benchmarkLoad(b, gin, way, 64, "duplicates", duplicates, max(100, reached/2))
		}
	}
}

// BenchmarkStanding is net/http under load over TCP while records stand in memory. Run it for at least 40,000 requests: in a second, the
// p99 is that of one collection, or of none.
func BenchmarkStanding(b *testing.B) {
	plain, rate := frameworkNamed(b, "nethttp"), 0.0
	for _, way := range []string{"memory", "memory+1000000", "memory+5000000"} {
		if way == "memory+5000000" && testing.Short() {
			continue // they take two gigabytes
		}
		reached := benchmarkLoad(b, plain, way, 64, "replays", 0, 0)
		if rate == 0 {
			rate = max(100, reached/2) // for all of them
		}
		benchmarkLoad(b, plain, way, 64, "replays", 0, rate)
	}
}

// benchmarkLoad returns how many requests were answered in a second. In a closed loop the rate is zero.
func benchmarkLoad(b *testing.B, fw framework, way string, connections int, kind string, percent int, rate float64) (reached float64) {
	loop := "closed"
	if rate > 0 {
		loop = "open"
	}
	b.Run(fmt.Sprintf("%s/%s/%s/connections=%d/%s=%d", fw.name, way, loop, connections, kind, percent), func(b *testing.B) {
		l := &load{way: way, prefix: "load-" + rand.Text()[:12] + "-", duplicates: float64(percent) / 100, settled: kind == "replays"}
		on, processes := way, 1
		switch way {
		case "redis":
			on = backend.Redis(b)
		case "redis2":
			on, processes = backend.Redis(b), 2
		}
		for range processes {
			l.services = append(l.services, startLoadService(b, fw.name+" "+on, l.prefix))
		}
		l.connect(b, connections)
		_, err := l.run(b.Context(), rehearsed*connections, 0)
		require.NoError(b, err)
		servicesBefore, err := l.check()
		require.NoError(b, err)
		operations, replayed, conflicts, clientBefore := len(l.operations), l.replayed, l.conflicts, processTime()

		b.ResetTimer()
		took, err := l.run(b.Context(), b.N, rate)
		b.StopTimer()
		require.NoError(b, err)
		client := processTime() - clientBefore
		services, err := l.check()
		require.NoError(b, err)

		reached = float64(b.N) / b.Elapsed().Seconds()
		if rate > 0 {
			b.ReportMetric(rate, "due/s")
		}
		b.ReportMetric(0, "ns/op") // it is the rate's inverse
		b.ReportMetric(reached, "req/s")
		for _, q := range []float64{50, 99, 99.9} {
			b.ReportMetric(float64(took[int(float64(len(took)-1)*q/100)]), fmt.Sprintf("p%v-ns", q))
		}
		b.ReportMetric(float64(len(l.operations)-operations), "operations")
		b.ReportMetric(float64(l.replayed-replayed), "replayed")
		b.ReportMetric(float64(l.conflicts-conflicts), "conflicts")
		b.ReportMetric(float64(services-servicesBefore)/float64(b.N), "service-cpu-ns")
		b.ReportMetric((services-servicesBefore).Seconds()/b.Elapsed().Seconds(), "service-cores")
		b.ReportMetric(client.Seconds()/b.Elapsed().Seconds(), "client-cores")
	})
	return reached
}

// What is carried out twice is found: by a service without a guard, and by two whose stores know nothing of each other.
func TestLoadNoticesWhatIsDoneTwice(t *testing.T) {
	for _, services := range [][]string{{"gin bare"}, {"gin memory", "gin memory"}} {
		l := &load{duplicates: 0.5}
		for _, what := range services {
			l.services = append(l.services, startLoadService(t, what, "load"))
		}
		l.connect(t, callers)
		_, err := l.run(t.Context(), 1000, 0)
		if err == nil {
			_, err = l.check()
		}
		require.Error(t, err)
	}
}
