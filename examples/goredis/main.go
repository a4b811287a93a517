// Command goredis is a service on net/http that counts its orders in Redis by go-redis, and gives idem the same client: there
// is no second set of connections, and no second configuration.
//
//	go run ./examples/goredis -redis 127.0.0.1:6379
//	curl -i 127.0.0.1:8080/orders -H 'X-User: ann' -H 'Idempotency-Key: k-1' -d '{}'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/goredisidem"
	"github.com/idem-go/idem/httpidem"
)

func main() {
	listen := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	servers := flag.String("redis", "127.0.0.1:6379", "`addresses` of Redis, separated by commas: several are nodes of a cluster")
	flag.Parse()

	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(*servers, ",")})
	defer func() { _ = client.Close() }()
	store, err := goredisidem.New(client, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	engine, err := core.New(core.Config{Service: "goredis", Store: store, User: core.UserFromHeader("X-User")})
	if err != nil {
		log.Fatal(err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server := &http.Server{Addr: *listen, Handler: handler(client, engine)}
	go func() {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = errors.Join(engine.Drain(drain), server.Shutdown(drain))
	}()
	log.Printf("listening on http://%s", *listen)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Print(err)
	}
}

// handler takes orders, each of which has the next number.
func handler(client redis.UniversalClient, engine *core.Engine) http.Handler {
	orders := engine.MustGuard(core.ClientKey())
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpidem.New(orders)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number, err := client.Incr(r.Context(), "goredis:orders").Result()
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]int64{"order": number})
	})))
	return mux
}
