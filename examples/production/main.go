// Command production is a payment service to copy: Gin, JWT, Redis or PostgreSQL, metrics, traces, logs, the operators' page, and an
// orderly shutdown. It needs JWT_SECRET, OPERATOR_PASSWORD and IDEM_SECRET in its environment. docs/production.md explains it.
package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/golang-jwt/jwt/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of postgres://
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/operate"
	"github.com/idem-go/idem/otelidem"
	"github.com/idem-go/idem/promidem"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` for customers")
	private := flag.String("private", "127.0.0.1:9090", "`address` for metrics, health and operators")
	url := flag.String("store", "redis://127.0.0.1:6379", "`URL` of Redis or PostgreSQL")
	bank := flag.String("bank", "http://127.0.0.1:8081/charges", "`URL` of the bank, which honours an Idempotency-Key")
	flag.Parse()
	secret, password, derived := os.Getenv("JWT_SECRET"), os.Getenv("OPERATOR_PASSWORD"), os.Getenv("IDEM_SECRET")
	if len(secret) < 32 || password == "" {
		log.Fatal("set JWT_SECRET, of at least 32 bytes, and OPERATOR_PASSWORD")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	traces := trace.NewTracerProvider(trace.WithBatcher(must(otlptracehttp.New(ctx)))) // to OTEL_EXPORTER_OTLP_ENDPOINT
	otel.SetTracerProvider(traces)
	metrics, telemetry := must(promidem.New(promidem.Config{})), must(otelidem.New(otelidem.Config{}))
	engine := must(core.New(core.Config{
		Service:      "payments", // no other service on this store has this name
		Store:        openStore(ctx, *url),
		User:         ginidem.UserFromContext("token"), // the issuer and the subject of the JWT
		Observe:      core.Observers(core.LogEvents(slog.Default(), slog.LevelInfo), metrics.Observe, telemetry.Observe),
		Secrets:      []core.Secret{{Name: "2026", Key: []byte(derived)}}, // of the keys that the bank gets: see pay
		ObserveStore: metrics.ObserveStore,
		Remark:       otelidem.Remark, // links a replay to the trace of the run
	}))
	gin.SetMode(gin.ReleaseMode)
	order := func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"order_id": rand.Text()}) }
	r := gin.New()
	r.Use(gin.Recovery(), authenticate([]byte(secret)))
	r.POST("/orders", ginidem.New(engine.MustGuard(core.Policy{})), order)           // user, route and parameters are the key
	r.POST("/payments", ginidem.New(engine.MustGuard(core.ClientKey())), pay(*bank)) // the client sends an Idempotency-Key
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	operators := operate.Options{Authorize: func(r *http.Request) (operate.Actor, operate.Access, error) {
		name, given, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(given), []byte(password)) == 0 {
			return "", operate.None, nil
		}
		return operate.Actor(name), operate.Change, nil
	}}
	mux.Handle("/admin/idempotency/", must(operate.New(engine, operators)))
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { // 200, also while the store is away
		fmt.Fprintln(w, "unsettled runs:", engine.Unsettled())
	})
	shutdownPrivate := serve("metrics", *private, mux)
	shutdown := serve("listening", *addr, otelhttp.NewHandler(r, "payments"))

	<-ctx.Done()
	// Drain lets runs end and waits until the store has their results. The platform must give the process more time than this.
	last, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	must(0, errors.Join(engine.Drain(last), shutdown(last), shutdownPrivate(last)))
	_ = traces.Shutdown(last) // the collector may be away
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func openStore(ctx context.Context, url string) store.Store {
	if !strings.HasPrefix(url, "postgres") {
		return must(redisstore.NewURL(url, redisstore.Config{}))
	}
	s := must(sqlstore.NewURL(ctx, url, sqlstore.Config{}))
	go func() { _ = s.PurgeEvery(ctx, 10*time.Minute) }() // a database keeps what has expired until it is purged
	return s
}

func authenticate(secret []byte) gin.HandlerFunc {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	return func(c *gin.Context) {
		bearer, _ := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
		token, err := parser.Parse(bearer, func(*jwt.Token) (any, error) { return secret, nil })
		if err != nil {
			c.AbortWithStatus(http.StatusUnauthorized)
			return
		}
		c.Set("token", token)
	}
}

func serve(what, addr string, h http.Handler) (shutdown func(context.Context) error) {
	l := must(net.Listen("tcp", addr))
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	go func() { log.Print(s.Serve(l)) }() // until the shutdown
	fmt.Printf("%s on http://%s\n", what, l.Addr())
	return s.Shutdown
}

// pay charges a card at the bank. All attempts of one payment send the bank the same key, so that it charges once.
func pay(bank string) gin.HandlerFunc {
	return func(c *gin.Context) {
		key, err := ginidem.Run(c).Derive("charge")
		if err != nil {
			_ = c.AbortWithError(http.StatusInternalServerError, err)
			return
		}
		req := must(http.NewRequestWithContext(c.Request.Context(), http.MethodPost, bank, c.Request.Body))
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			_ = c.AbortWithError(http.StatusBadGateway, err) // a failure: the client's next try calls the bank again
			return
		}
		defer resp.Body.Close()
		c.DataFromReader(resp.StatusCode, resp.ContentLength, resp.Header.Get("Content-Type"), resp.Body, nil)
	}
}
