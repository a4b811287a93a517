package httpidem_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/httpidem"
)

func ExampleNew() {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	orders := engine.MustGuard(core.Policy{})

	executed := 0
	createOrder := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		executed++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", executed)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpidem.New(orders)(createOrder))

	for range 2 {
		r := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"sku":"A-1"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-User", "alice")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get(core.ReplayedHeader) == "true")
	}
	// Output:
	// 201 order 1, replayed: false
	// 201 order 1, replayed: true
}

func ExampleUserFromContext() {
	type userKey struct{}
	engine := core.MustNew(core.Config{User: httpidem.UserFromContext(userKey{})})
	_ = httpidem.New(engine.MustGuard(core.ClientKey()))
}

func ExampleWithRoute() {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	router := func(r *http.Request) (string, []adapter.Pair) { // what a router of yours knows
		id, ok := strings.CutPrefix(r.URL.Path, "/orders/")
		if !ok {
			return "", nil
		}
		return "/orders/{id}", []adapter.Pair{{Name: "id", Value: id}}
	}
	_ = httpidem.New(engine.MustGuard(core.Policy{}), httpidem.WithRoute(router))
}
