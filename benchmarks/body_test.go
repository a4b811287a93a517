package benchmarks

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// cargoOf returns a body of a kind, of exactly size bytes, as it is sent by a framing.
func cargoOf(kind kind, size int, by framing) cargo {
	// What JSON bodies are filled up with, and any bytes of binary ones.
	return cargo{kind.contentType, kind.make(size), size - 12, by}
}

func kindNamed(tb testing.TB, name string) kind {
	tb.Helper()
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	require.GreaterOrEqual(tb, i, 0, "there is no kind %s", name)
	return kinds[i]
}

// BenchmarkBody is what a guard adds to each framework by the size of the body, for a handler
// that reads all of it, beside the digest of the same bytes: "md5" alone; "read-md5" with
// what nobody can do without who needs the whole body in front of a handler that may keep it,
// memory of its own. (Fiber has read the body already, and lends it.) Each request is
// another operation, and its key is made of its parameters.
func BenchmarkBody(b *testing.B) {
	for _, kind := range []kind{kindNamed(b, "json"), kindNamed(b, "binary")} {
		for _, size := range bodySizes {
			if size.name != "200B" && size.name != "1MiB" {
				continue
			}
			b.Run(fmt.Sprintf("none/%s/%s/md5", kind.name, size.name), func(b *testing.B) {
				body := kind.make(size.bytes)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					md5.Sum(body)
				}
			})
			b.Run(fmt.Sprintf("none/%s/%s/read-md5", kind.name, size.name), func(b *testing.B) {
				body := kind.make(size.bytes)
				from := bytes.NewReader(nil)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					from.Reset(body)
					own := make([]byte, len(body))
					if _, err := io.ReadFull(from, own); err != nil {
						b.Fatal(err)
					}
					md5.Sum(own)
				}
			})
			for _, fw := range frameworks {
				name := fw.name + "/" + kind.name + "/" + size.name
				benchmarkBody(b, name, fw, cargoOf(kind, size.bytes, whole))
				if size.name != "1MiB" || kind.name != "binary" {
					continue
				}
				benchmarkBody(b, name+"-chunked", fw, cargoOf(kind, size.bytes, chunked))
				if strings.HasPrefix(fw.name, "fiber") {
					benchmarkBody(b, name+"-streamed", fw, cargoOf(kind, size.bytes, streamed))
				}
			}
		}
	}
}

func benchmarkBody(b *testing.B, name string, fw framework, c cargo) {
	work := workload{distinct: true, executed: true, want: wantCreated}
	b.Run(name+"/bare", func(b *testing.B) { measureBody(b, fw, nil, c, work) })
	b.Run(name+"/guarded", func(b *testing.B) {
		on := openMemory(b, work.records(b.N))
		measureBody(b, fw, on.engine().MustGuard(core.Policy{}), c, work)
		// Each was another operation, so the body counts up to the number at its end.
		require.Equal(b, work.records(b.N), on.records(b))
	})
}

func measureBody(b *testing.B, fw framework, g *core.Guard, c cargo, work workload) {
	b.Helper()
	h := &handler{keeps: true}
	client := fw.mount(h, g).client()
	client.carry(c)
	b.SetBytes(int64(len(c.body)))
	work.measure(b, h, client)
	require.Equal(b, len(c.body), h.received)
}

// TestOneCopyOfTheBody: a guard allocates no more than the body for a body of known length,
// and nothing where the framework has it in memory.
func TestOneCopyOfTheBody(t *testing.T) {
	const requests = 20
	for _, fw := range frameworks {
		for _, size := range []int{64 << 10, 1 << 20} {
			t.Run(fmt.Sprint(fw.name, size), func(t *testing.T) {
				allocated := func(g *core.Guard) int {
					h := &handler{keeps: true}
					client := fw.mount(h, g).client()
					client.carry(cargoOf(kindNamed(t, "binary"), size, whole))
					require.Equal(t, wantCreated, client.ask("", 0)) // fills the pools
					defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which empties them
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					for i := range requests {
						client.send("", i+1)
					}
					runtime.ReadMemStats(&after)
					require.Equal(t, requests+1, h.executed)
					require.Equal(t, size, h.received)
					return int(after.TotalAlloc-before.TotalAlloc) / requests
				}
				guard := core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{})
				added, copies := allocated(guard)-allocated(nil), 1
				if strings.HasPrefix(fw.name, "fiber") {
					copies = 0
				}
				require.LessOrEqual(t, added, copies*size+size/5)
			})
		}
	}
}
