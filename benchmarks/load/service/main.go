// Command service is what the load generator puts under load: one route, POST /operations, on
// one of the frameworks, behind a guard or not, and GET /executions, which tells how often
// each operation was carried out in this process, a line "number count" each.
//
//	service -framework gin -store redis://127.0.0.1:6379 -prefix run1:
//
// It takes a free port of 127.0.0.1 unless -addr says otherwise, says "listening on URL", and
// ends by SIGTERM, or with its standard input, should whoever started it be killed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/httpidem"
)

type options struct {
	addr, framework, store, guard, prefix string
	retain                                time.Duration
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.addr, "addr", "127.0.0.1:0", "`address` to listen on")
	flag.StringVar(&o.framework, "framework", "gin", "gin, echo, fiber or nethttp")
	flag.StringVar(&o.store, "store", "memory", "memory, or the `URL` of a store as the example programs take it")
	flag.StringVar(&o.guard, "guard", "client", "client: Idempotency-Key; params: a key of the parameters; none: bare")
	flag.StringVar(&o.prefix, "prefix", "load:", "what stored keys begin with")
	flag.DurationVar(&o.retain, "retain", 2*time.Minute, "how long results are replayed")
	flag.Parse()
	go func() { // it does not outlive who started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := run(o); err != nil {
		log.Fatal(err)
	}
}

func run(o options) error {
	store, closeStore, err := open(o.store)
	if err != nil {
		return err
	}
	defer closeStore()
	guard, err := newGuard(o, store)
	if err != nil {
		return err
	}
	server, err := serverOf(o.framework, guard, &counter{})
	if err != nil {
		return err
	}
	return serve(o.addr, server)
}

// serve serves until SIGTERM or SIGINT, and lets what is running end.
func serve(addr string, server shop.Server) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + listener.Addr().String())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err = server.Shutdown(ctx); err == nil {
			err = <-served
		}
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// open opens a store. The one in the process has room for what a run of minutes leaves.
func open(name string) (store.Store, func(), error) {
	if name == "memory" {
		s, err := memstore.New(memstore.Options{MaxEntries: 20_000_000, MaxBytes: 8 << 30})
		return s, func() {}, err
	}
	s, err := shop.OpenStore(shop.Options{Store: name})
	if err != nil {
		return nil, nil, err
	}
	return s.Store, s.Close, nil
}

// newGuard returns the guard of the route, or nil if it is bare.
func newGuard(o options, store store.Store) (*core.Guard, error) {
	var policy core.Policy
	switch o.guard {
	case "none":
		return nil, nil
	case "client":
		policy = core.ClientKey()
	case "params":
	default:
		return nil, fmt.Errorf("-guard is client, params or none, not %q", o.guard)
	}
	policy.Retention = o.retain
	engine, err := core.New(core.Config{Store: store, Prefix: o.prefix, User: core.UserFromHeader("X-User")})
	if err != nil {
		return nil, err
	}
	return engine.Guard(policy)
}

// serverOf serves the two routes on a framework. A nil guard leaves the first one bare.
func serverOf(framework string, guard *core.Guard, done *counter) (shop.Server, error) {
	const route = "/operations"
	switch framework {
	case "gin":
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		handlers := []gin.HandlerFunc{func(c *gin.Context) {
			body, err := io.ReadAll(c.Request.Body)
			status, answer := done.carryOut(body, err)
			c.Data(status, "application/json", answer)
		}}
		if guard != nil {
			handlers = slices.Insert(handlers, 0, ginidem.New(guard))
		}
		r.POST(route, handlers...)
		r.GET("/executions", gin.WrapH(done))
		return shop.HTTPServer(r), nil
	case "echo":
		e := echo.New()
		var middleware []echo.MiddlewareFunc
		if guard != nil {
			middleware = append(middleware, echoidem.New(guard))
		}
		e.POST(route, func(c echo.Context) error {
			body, err := io.ReadAll(c.Request().Body)
			status, answer := done.carryOut(body, err)
			return c.Blob(status, "application/json", answer)
		}, middleware...)
		e.GET("/executions", echo.WrapHandler(done))
		return shop.HTTPServer(e), nil
	case "fiber":
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		handlers := []fiber.Handler{func(c *fiber.Ctx) error {
			status, answer := done.carryOut(c.BodyRaw(), nil)
			c.Set("Content-Type", "application/json")
			return c.Status(status).Send(answer)
		}}
		if guard != nil {
			handlers = slices.Insert(handlers, 0, fiberidem.New(guard))
		}
		app.Post(route, handlers...)
		app.Get("/executions", func(c *fiber.Ctx) error { return c.Send(done.report()) })
		return shop.Server{Serve: app.Listener, Shutdown: app.ShutdownWithContext}, nil
	case "nethttp":
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			status, answer := done.carryOut(body, err)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write(answer) // the client may have gone
		})
		if guard != nil {
			h = httpidem.New(guard)(h)
		}
		mux := http.NewServeMux()
		mux.Handle("POST "+route, h)
		mux.Handle("GET /executions", done)
		return shop.HTTPServer(mux), nil
	}
	return shop.Server{}, fmt.Errorf("-framework is gin, echo, fiber or nethttp, not %q", framework)
}

// counter carries operations out, and knows how often it has done so for each.
type counter struct {
	mu         sync.Mutex
	executions map[uint64]uint64
	total      uint64
}

// carryOut counts the operation that the body names in {"operation":17,...}, and returns the
// answer: no two executions answer alike. readErr is the error of reading the body.
func (c *counter) carryOut(body []byte, readErr error) (status int, answer []byte) {
	operation, err := operationOf(body)
	if err = errors.Join(readErr, err); err != nil {
		return http.StatusBadRequest, strconv.AppendQuote(nil, err.Error())
	}
	c.mu.Lock()
	if c.executions == nil {
		c.executions = map[uint64]uint64{}
	}
	c.executions[operation]++
	c.total++
	total := c.total
	c.mu.Unlock()
	answer = append(make([]byte, 0, 80), `{"operation":`...)
	answer = strconv.AppendUint(answer, operation, 10)
	answer = append(answer, `,"process":`...)
	answer = strconv.AppendInt(answer, int64(os.Getpid()), 10)
	answer = append(answer, `,"execution":`...)
	answer = strconv.AppendUint(answer, total, 10)
	return http.StatusCreated, append(answer, '}')
}

// operationOf reads the number at the beginning of a body. The service is to cost as little
// as it can, so it does not take the rest apart.
func operationOf(body []byte) (uint64, error) {
	rest, ok := bytes.CutPrefix(body, []byte(`{"operation":`))
	end := bytes.IndexAny(rest, ",}")
	if !ok || end < 0 {
		return 0, errors.New("the body does not begin with its operation")
	}
	return strconv.ParseUint(string(rest[:end]), 10, 64)
}

// report lists the operations and how often each was carried out.
func (c *counter) report() []byte {
	c.mu.Lock()
	executions := maps.Clone(c.executions)
	c.mu.Unlock()
	text := make([]byte, 0, 10*len(executions))
	for operation, n := range executions {
		text = strconv.AppendUint(text, operation, 10)
		text = append(text, ' ')
		text = strconv.AppendUint(text, n, 10)
		text = append(text, '\n')
	}
	return text
}

func (c *counter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(c.report()) // the client may have gone
}
