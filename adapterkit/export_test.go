package adapterkit

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/idem-go/idem/adapterkit/internal/buffer"
	"github.com/idem-go/idem/core/adapter"
)

// Poison is what PoisonPools leaves.
const Poison = 0xA5

// PoisonPools overwrites all memory that lies in the pools. What is in a pool is nobody's: if
// any of it turns up anywhere, or the race detector sees somebody else look at it, it was put
// back too early.
func PoisonPools() {
	m := memories.Get().(*memory)
	_, _ = m.ReadAll(bytes.NewReader(bytes.Repeat([]byte{Poison}, buffer.MaxPooled)), 0, buffer.MaxPooled) // over what was there
	m.hooks.reset(bytes.Repeat([]byte{Poison}, 100), io.NopCloser(nil))
	memories.Put(m)

	k := keptPool.Get().(*kept)
	Scribble(k.body)
	for _, fields := range [][]adapter.Field{k.before[:cap(k.before)], k.fields[:cap(k.fields)]} {
		for i := range fields {
			fields[i] = adapter.Field{Name: "X-Poison", Value: "poison"}
		}
	}
	for i := range k.values[:cap(k.values)] {
		k.values[:cap(k.values)][i] = "poison"
	}
	keptPool.Put(k)

	c := chunks.Get().(*[32 << 10]byte)
	Scribble(c[:])
	chunks.Put(c)
}

// ReadInFront reads the body as Verify does.
func ReadInFront(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := messages.Get().(*message)
		m.start(r)
		if _, err := m.ReadBody(1 << 20); err != nil {
			panic(err)
		}
		read := m.forHandler(r.Context(), new(lentBody))
		m.end()
		messages.Put(m)
		next.ServeHTTP(w, read)
	})
}

// Start, Capture, Deliver, Undo and Passing are what an Exchange does with its recorder.
func (r *Recorder) Start(ctx context.Context, w http.ResponseWriter, limit int) {
	r.start(ctx, w, w, limit)
}

func (r *Recorder) Capture() adapter.Capture             { return r.capture() }
func (r *Recorder) Deliver(fields []adapter.Field) error { return r.deliver(fields) }
func (r *Recorder) Undo()                                { r.drop(true) }
func (r *Recorder) Passing() bool                        { return r.sending() }

// Scribble overwrites b.
func Scribble(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = Poison
	}
}

// CheckPools fails if what has gone back into a pool holds anything but memory. use puts something
// there.
func CheckPools(t *testing.T, use func()) {
	// Empties the pools of what other tests have poisoned: what survives one is dropped by the next.
	runtime.GC()
	runtime.GC()
	use()

	if m := memories.Get().(*memory); m.hooks.all != nil || m.hooks.rest != nil || m.hooks.closer != nil {
		t.Errorf("memory of a request in the pool has %+v", m.hooks)
	}
	k := keptPool.Get().(*kept)
	if len(k.before)+len(k.fields)+len(k.body)+len(k.header)+len(k.values) > 0 {
		t.Errorf("memory of a capture in the pool has %+v", k)
	}
	for _, f := range append(k.before[:cap(k.before)], k.fields[:cap(k.fields)]...) {
		if f != (adapter.Field{}) {
			t.Errorf("memory of a capture in the pool has %v", f)
		}
	}
	for _, value := range k.values[:cap(k.values)] {
		if value != "" {
			t.Errorf("memory of a capture in the pool has %q", value)
		}
	}
}
