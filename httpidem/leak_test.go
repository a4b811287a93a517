package httpidem

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
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
// Verify has read. What a handler keeps of its request's body is its own for good.
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
		return &marked.Response{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}, nil
	}
	const requests = 3000
	marked.Run{Requests: requests, Send: send, Poison: poisonPools}.Test(t, store)
	bodies.Check(t, requests)
}
