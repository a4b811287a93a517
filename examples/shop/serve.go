package shop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Server is what [Serve] needs of a web server.
type Server struct {
	// Serve serves until Shutdown is called, and returns nil or [http.ErrServerClosed].
	Serve func(net.Listener) error
	// Shutdown stops listening and waits until ctx ends for what is running.
	Shutdown func(ctx context.Context) error
}

// HTTPServer is a server of net/http, which every framework but Fiber builds on.
func HTTPServer(h http.Handler) Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		// When this one passes while a handler runs, the request's context ends. It must
		// bear the longest handler and the longest wait of a duplicate, as the next one.
		ReadTimeout:  MaxSleep + time.Minute,
		WriteTimeout: MaxSleep + time.Minute,
		IdleTimeout:  2 * time.Minute,
	}
	return Server{Serve: s.Serve, Shutdown: s.Shutdown}
}

// shutdownTimeout is how long handlers have to end after a signal.
const shutdownTimeout = 30 * time.Second

// Serve listens on o.Addr, and on o.Metrics for itself, says so on stdout, and serves until SIGINT or SIGTERM, when it
// lets the running handlers end. A second signal ends the program at once.
func Serve(o Options, g *Guards, s Server) error {
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return err
	}
	if o.Metrics != "" {
		metrics, err := net.Listen("tcp", o.Metrics)
		if err != nil {
			l.Close()
			return err
		}
		defer metrics.Close()
		fmt.Printf("metrics on http://%s/metrics\n", metrics.Addr())
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", g.Metrics)
		go func() { _ = HTTPServer(mux).Serve(metrics) }() // until it is closed
	}
	welcome(os.Stdout, "http://"+l.Addr().String())

	return ServeOn(l, s, g.Drain)
}

// ServeOn serves on l until SIGINT or SIGTERM, when it ends the runs by drain, as [core.Engine.Drain] does. A second signal ends
// the program at once.
func ServeOn(l net.Listener, s Server, drain func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		stop()
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		_ = drain(ctx) // that its time is up, Shutdown says too
		if err = s.Shutdown(ctx); err == nil {
			err = <-served
		}
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func welcome(w io.Writer, url string) {
	fmt.Fprintf(w, `listening on %[1]s
# an order
curl -i %[1]s/orders -H 'X-User: ann' -H 'Content-Type: application/json' -d '{"sku":"tea","qty":1}'
# the same order, its members in another order: the first answer again, with Idempotent-Replayed: true
curl -i %[1]s/orders -H 'X-User: ann' -H 'Content-Type: application/json' -d '{"qty":1,"sku":"tea"}'
# a payment with a key of the client's own
curl -i %[1]s/payments -H 'X-User: ann' -H 'Idempotency-Key: "k-1"' -H 'Content-Type: application/json' -d '{"amount":500}'
# a form for people, to be sent twice: %[1]s/checkout
# what becomes of payments that are sent twice, as a picture: %[1]s/try
# signed requests to %[1]s/webhooks: good, stale, tampered, replayed
go run ./examples/signclient -url %[1]s/webhooks
`, url)
}
