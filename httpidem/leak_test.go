package httpidem

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/marked"
)

const poison = 0xA5

// poisonPools overwrites all memory that lies in the pools. What is in a pool is nobody's: if
// any of it turns up anywhere, or the race detector sees somebody else look at it, it was put
// back too early.
func poisonPools() {
	x := exchanges.Get().(*exchange)
	scribble(x.buffer)
	x.hooks.reset(bytes.Repeat([]byte{poison}, 100), io.NopCloser(nil))
	exchanges.Put(x)

	m := messages.Get().(*message)
	scribble(m.buffer)
	messages.Put(m)

	k := keptPool.Get().(*kept)
	scribble(k.body)
	for _, fields := range [][]core.Field{k.before[:cap(k.before)], k.fields[:cap(k.fields)]} {
		for i := range fields {
			fields[i] = core.Field{Name: "X-Poison", Value: "poison"}
		}
	}
	for i := range k.values[:cap(k.values)] {
		k.values[:cap(k.values)][i] = "poison"
	}
	keptPool.Put(k)

	c := chunks.Get().(*[32 << 10]byte)
	scribble(c[:])
	chunks.Put(c)
}

// readInFront reads the body as Verify does.
func readInFront(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := messages.Get().(*message)
		m.start(r)
		if _, err := m.ReadBody(1 << 20); err != nil {
			panic(err)
		}
		read := m.For(r.Context(), new(Body))
		m.end()
		messages.Put(m)
		next.ServeHTTP(w, read)
	})
}

func scribble(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = poison
	}
}

// TestNothingLeaks: thousands of requests at once, in memory that is used again and poisoned
// in between, and nobody gets or leaves anything of another, also where a guard uses what
// Verify has read. What a handler keeps of its request's body is its own for good. Whoever
// stands in front has his request back, without what the guard has put there.
func TestNothingLeaks(t *testing.T) {
	engine, store := marked.Engine(t)
	parameters, key := marked.Guards(engine)
	var bodies marked.Bodies
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		poisonPools()
		seen := marked.Seen{ID: r.PathValue("id"), Query: r.URL.RawQuery, User: r.Header.Get("X-User"), Key: r.Header.Get("Idempotency-Key")}
		seen.Body, _ = io.ReadAll(r.Body)
		bodies.Keep(seen.ID, r.GetBody)
		a := marked.Of(seen)
		w.Header().Set("Content-Type", a.ContentType)
		w.Header().Set("Location", a.Location)
		w.Header().Set("X-Echo", a.Echo)
		w.WriteHeader(http.StatusCreated)
		half := len(a.Body) / 2
		_, _ = w.Write(a.Body[:half])
		_, _ = io.Copy(w, bytes.NewReader(a.Body[half:]))
		scribble(a.Body) // the recorder must have copied it
	})
	mux := http.NewServeMux()
	mux.Handle("POST /parameters/{id}", New(parameters)(handler))
	mux.Handle("POST /keys/{id}", readInFront(New(key)(handler)))

	send := func(r *http.Request) (*marked.Response, error) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		poisonPools()
		if left, err := io.ReadAll(r.Body); err != nil || bytes.IndexByte(left, poison) >= 0 {
			return nil, fmt.Errorf("after the guard the request's body has %d bytes of another, %v", len(left), err)
		}
		return &marked.Response{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}, nil
	}
	const requests = 3000
	marked.Run{Requests: requests, Send: send, Poison: poisonPools}.Test(t, store)
	bodies.Check(t, requests)
}

// What goes back into a pool holds nothing but memory.
func TestPoolsHoldMemoryOnly(t *testing.T) {
	// Empties the pools of what other tests have poisoned: what survives one is dropped by the next.
	runtime.GC()
	runtime.GC()
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	h := New(engine.MustGuard(core.Policy{}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("X-Own", "1")
		w.Header().Add("X-Own", "2")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("made"))
	}))
	w := httptest.NewRecorder()
	w.Header().Set("X-Outer", "1")
	h.ServeHTTP(w, httptest.NewRequest("POST", "/", bytes.NewReader([]byte("body"))))

	x := exchanges.Get().(*exchange)
	x.buffer = nil
	if !reflect.DeepEqual(*x, exchange{}) {
		t.Errorf("an exchange in the pool has %+v", x)
	}
	k := keptPool.Get().(*kept)
	if len(k.before)+len(k.fields)+len(k.body)+len(k.header)+len(k.values) > 0 {
		t.Errorf("memory of a capture in the pool has %+v", k)
	}
	for _, f := range append(k.before[:cap(k.before)], k.fields[:cap(k.fields)]...) {
		if f != (core.Field{}) {
			t.Errorf("memory of a capture in the pool has %v", f)
		}
	}
	for _, value := range k.values[:cap(k.values)] {
		if value != "" {
			t.Errorf("memory of a capture in the pool has %q", value)
		}
	}
}
