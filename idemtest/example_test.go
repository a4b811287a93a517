package idemtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemtest"
)

// newShop is the service that is to be tested. It takes the engine from outside.
func newShop(engine *core.Engine) http.Handler {
	payments := engine.MustGuard(core.ClientKey())
	mux := http.NewServeMux()
	mux.Handle("POST /payments", httpidem.New(payments)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpidem.Run(r).Takeover() {
			// An earlier run was begun and never finished: find out before paying again.
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	return mux
}

// A test of one's own handler: what happens to duplicates, after a crash, and without a store.
func ExampleNew() {
	t := new(testing.T) // the test's own, in a test

	e := idemtest.New(t, core.Config{User: core.UserFromHeader("X-User")})
	shop := newShop(e.Engine)
	pay := func(key string) int {
		r := httptest.NewRequest("POST", "/payments", nil)
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		shop.ServeHTTP(w, r)
		return w.Code
	}

	fmt.Println("twice:", pay("k-1"), pay("k-1"))
	e.WantRuns("POST /payments", 1)

	e.NextIsRunning(time.Minute)
	fmt.Println("while another one runs:", pay("k-2"))

	e.NextIsAbandoned(1)
	fmt.Println("after a crash:", pay("k-3"))

	e.Fail(idemtest.Acquire)
	fmt.Println("without a store:", pay("k-4"))
	// Output:
	// twice: 201 201
	// while another one runs: 409
	// after a crash: 202
	// without a store: 503
}
