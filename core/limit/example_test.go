package limit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/limit"
	"github.com/idem-go/idem/httpidem"
)

func Example() {
	searches := limit.New(2, time.Minute) // for each user
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, r *http.Request) {
		if httpidem.Refuse(w, r, core.Allow(r.Context(), searches, r.Header.Get("X-User"))) {
			return
		}
		fmt.Fprint(w, "found")
	})

	for _, user := range []string{"alice", "alice", "alice", "bob"} {
		r := httptest.NewRequest("GET", "/search?q=shoes", nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%s: %d %q\n", user, w.Code, w.Header().Get(core.RefusedHeader))
	}
	// Output:
	// alice: 200 ""
	// alice: 200 ""
	// alice: 429 "rate_limited"
	// bob: 200 ""
}

// What a user asks for is not only requests.
func ExampleLimiter_Allow() {
	letters := limit.New(1, 24*time.Hour)
	for range 2 {
		wait, err := letters.Allow(context.Background(), "alice@example.com")
		fmt.Println(wait.Round(time.Hour), err)
	}
	// Output:
	// 0s <nil>
	// 24h0m0s <nil>
}
