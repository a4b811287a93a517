// Command service is what the tests of package faults kill and freeze: one route behind a guard and one
// for tasks, on any framework, over any store. Its handlers call a bank, which is the test: that counts the calls,
// and answers when the handler shall go on.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/httpidem"
)

var (
	framework = flag.String("framework", "",
		"gin, echo, echo5, fiber, fiber3 or nethttp; without one, payments are protected by sqlstore's DoTx in place of a guard")
	storeURL  = flag.String("store", "", "redis://…, postgres://…, mysql://… or sqlite:FILE")
	lease     = flag.Duration("lease", time.Second, "the policy's lease")
	timeout   = flag.Duration("timeout", 0, "the engine's StoreTimeout")
	uncertain = flag.Bool("uncertain", false, "abandoned runs are not taken over")
	bank      = flag.String("bank", "", "the URL that the handler calls")
	trace     = flag.String("trace", "", "the file that gets the guard's calls of the store")
	name      = flag.String("name", "", "the service's, and in a database its table's; empty: shop, and sqlstore's own")
	retain    = flag.Duration("retain", 0, "how long records are remembered; zero: the policy's defaults")
	plant     = flag.String("plant", "", "a fault that tests must notice: claims or effects are forgotten at times")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	go func() { // nobody outlives the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := serve(); err != nil {
		log.Fatal(err)
	}
}

func serve() error {
	ctx := context.Background()
	var store store.Store
	var db *sql.DB
	if strings.HasPrefix(*storeURL, "redis") {
		s, err := redisstore.NewURL(*storeURL, redisstore.Config{})
		if err != nil {
			return err
		}
		store = s
	} else {
		pool, dialect, err := sqlstore.Open(*storeURL)
		if err != nil {
			return err
		}
		s, err := sqlstore.New(pool, dialect, sqlstore.Config{Table: *name})
		if err == nil {
			err = s.Migrate(ctx)
		}
		if err != nil {
			return err
		}
		store, db = s, pool
	}

	guarded := store
	if *trace != "" {
		file, err := os.OpenFile(*trace, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		guarded = storetest.Traced(store, file)
	}
	if *plant == "claims" {
		guarded = forgetful{guarded}
	}
	engine, err := core.New(core.Config{Service: cmp.Or(*name, "shop"), Store: guarded, StoreTimeout: *timeout,
		User: core.UserFromHeader("X-User"), Observe: observe,
		Secrets: []core.Secret{{Name: "s1", Key: []byte("0123456789abcdef0123456789abcdef")}}})
	if err != nil {
		return err
	}
	policy := core.Policy{Key: core.Header(core.Required), Record: core.Record{
		Lease: *lease, Retention: *retain, RememberAbandoned: *retain}}
	if *uncertain {
		policy.Abandoned = core.Uncertain(nil)
	}
	guard, err := engine.Guard(policy)
	if err != nil {
		return err
	}
	task, err := engine.Task(core.TaskPolicy{Name: "payments", Record: policy.Record})
	if err != nil {
		return err
	}
	pay := func(ctx context.Context, operation string, run *core.Run) (int, string) {
		// It goes on also when its claim is lost, as a handler does that never looks at its
		// context.
		receipt, err := execute(operation, run)
		if err != nil {
			return http.StatusBadGateway, err.Error()
		}
		return http.StatusCreated, receipt
	}
	payTask := func(w http.ResponseWriter, r *http.Request) {
		operation := r.Header.Get("Idempotency-Key")
		result, err := core.Do(ctx, task, core.Call{Key: operation}, func(ctx context.Context) (string, error) {
			return execute(operation, core.RunFrom(ctx))
		})
		var refusal *core.Refusal
		switch {
		case errors.As(err, &refusal):
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(refusal.Status)
			_ = json.NewEncoder(w).Encode(map[string]any{"code": refusal.Code})
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadGateway)
		default:
			if result.Replayed {
				w.Header().Set("Idempotent-Replayed", "true")
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, result.Value)
		}
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + listener.Addr().String())
	if *framework == "" { // nothing of a framework's is in DoTx
		return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			result, err := payTx(ctx, store.(*sqlstore.Store), db, r.Header.Get("Idempotency-Key"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			if result.Replayed {
				w.Header().Set("Idempotent-Replayed", "true")
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(result.Value)
		}))
	}
	serve := frameworks[*framework]
	if serve == nil {
		return fmt.Errorf("no framework is called %q", *framework)
	}
	return serve(listener, routes{guard, pay, payTask})
}

// routes are what a framework serves.
type routes struct {
	guard   *core.Guard
	pay     func(ctx context.Context, operation string, run *core.Run) (status int, body string)
	payTask http.HandlerFunc
}

// frameworks are the names of flag -framework. The others are in frameworks.go.
var frameworks = map[string]func(net.Listener, routes) error{"nethttp": serveNetHTTP}

func serveNetHTTP(l net.Listener, r routes) error {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", httpidem.New(r.guard)(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		status, body := r.pay(req.Context(), req.Header.Get("Idempotency-Key"), httpidem.Run(req))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})))
	mux.HandleFunc("POST /tasks", r.payTask)
	mux.HandleFunc("GET /now", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, now()) })
	return http.Serve(l, mux)
}

// execute makes the payment, and returns its receipt.
func execute(operation string, run *core.Run) (receipt string, err error) {
	if *plant != "effects" || rand.IntN(3) > 0 {
		err = call("execute "+run.ID().String(), operation, run.Attempt())
	}
	return fmt.Sprintf("%s, attempt %d", operation, run.Attempt()), err
}

// forgetful is a store that forgets some claims as soon as they are made.
type forgetful struct{ store.Store }

func (f forgetful) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	grant, err := f.Store.Acquire(ctx, key, claim)
	if err == nil && grant.State == store.Acquired && rand.IntN(3) == 0 {
		err = f.Release(ctx, key, claim.Owner)
	}
	return grant, err
}

// observe tells the test what happens, on a line each.
func observe(_ context.Context, e core.Event) {
	e.Err = nil
	line, err := json.Marshal(e)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("event: %s\n", line)
}

// now is the time by this process's clock.
func now() string { return strconv.FormatInt(time.Now().Unix(), 10) }

// payTx makes the payment in the transaction that holds the record.
func payTx(ctx context.Context, s *sqlstore.Store, db *sql.DB, operation string) (core.Result[[]byte], error) {
	result, err := s.DoTx(ctx, db, operation, func(tx *sql.Tx) ([]byte, error) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments (operation) VALUES ('"+operation+"')"); err != nil {
			return nil, err
		}
		return []byte(operation), call("inside", operation, 0)
	})
	if err == nil {
		err = call("committed", operation, 0)
	}
	return result, err
}

// call tells the bank how far an operation is, and waits for its answer.
func call(step, operation string, attempt uint64) error {
	resp, err := http.PostForm(*bank, url.Values{
		"step": {step}, "operation": {operation}, "attempt": {strconv.FormatUint(attempt, 10)},
	})
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
