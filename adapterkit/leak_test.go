package adapterkit_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/leakcheck"
)

// TestNothingLeaks: thousands of requests at once, in memory that is used again and poisoned
// in between, and nobody gets or leaves anything of another, also where a guard uses what
// Verify has read. What a handler keeps of its request's body is its own for good. Whoever
// stands in front has his request back, without what the guard has put there.
func TestNothingLeaks(t *testing.T) {
	engine, store := leakcheck.Engine(t)
	parameters, key := leakcheck.Guards(engine)
	var bodies leakcheck.Bodies
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		adapterkit.PoisonPools()
		seen := leakcheck.Seen{ID: r.PathValue("id"), Query: r.URL.RawQuery, User: r.Header.Get("X-User"),
			Key: r.Header.Get("Idempotency-Key")}
		seen.Body, _ = io.ReadAll(r.Body)
		bodies.Keep(seen.ID, r.GetBody)
		a := leakcheck.Of(seen)
		w.Header().Set("Content-Type", a.ContentType)
		w.Header().Set("Location", a.Location)
		w.Header().Set("X-Echo", a.Echo)
		w.WriteHeader(http.StatusCreated)
		half := len(a.Body) / 2
		_, _ = w.Write(a.Body[:half])
		_, _ = io.Copy(w, bytes.NewReader(a.Body[half:]))
		adapterkit.Scribble(a.Body) // the recorder must have copied it
	})
	mux := http.NewServeMux()
	mux.Handle("POST /parameters/{id}", httpidem.New(parameters)(handler))
	mux.Handle("POST /keys/{id}", adapterkit.ReadInFront(httpidem.New(key)(handler)))

	send := func(r *http.Request) (*leakcheck.Response, error) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		adapterkit.PoisonPools()
		if left, err := io.ReadAll(r.Body); err != nil || bytes.IndexByte(left, adapterkit.Poison) >= 0 {
			return nil, fmt.Errorf("after the guard the request's body has %d bytes of another, %v", len(left), err)
		}
		return &leakcheck.Response{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}, nil
	}
	const requests = 3000
	leakcheck.Run{Requests: requests, Send: send, Poison: adapterkit.PoisonPools}.Test(t, store)
	bodies.Check(t, requests)
}

// What goes back into a pool holds nothing but memory.
func TestPoolsHoldMemoryOnly(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	h := httpidem.New(engine.MustGuard(core.Policy{}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("X-Own", "1")
		w.Header().Add("X-Own", "2")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("made"))
	}))
	w := httptest.NewRecorder()
	w.Header().Set("X-Outer", "1")
	adapterkit.CheckPools(t, func() {
		h.ServeHTTP(w, httptest.NewRequest("POST", "/", bytes.NewReader([]byte("body"))))
	})
}
