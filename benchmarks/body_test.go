package benchmarks

import (
	"crypto/md5"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// cargoOf returns a body of a kind, of exactly size bytes, as it is sent by a framing.
func cargoOf(kind kind, size int, by framing) cargo {
	// What JSON bodies are filled up with, and any bytes of binary ones.
	return cargo{kind.contentType, kind.make(size), size - 12, by}
}

// bodyKinds are those of kinds that are read in full: as parameters, and as raw bytes.
func bodyKinds(b testing.TB) (chosen []kind) {
	for _, k := range kinds {
		if k.name == "json" || k.name == "binary" {
			chosen = append(chosen, k)
		}
	}
	require.Len(b, chosen, 2)
	return chosen
}

// BenchmarkBody is what a guard adds to each framework by the size of the body, for a handler
// that reads all of it, beside the digest of the same bytes. Each request is another
// operation, and its key is made of its parameters.
func BenchmarkBody(b *testing.B) {
	for _, kind := range bodyKinds(b) {
		for _, size := range bodySizes {
			if size.name == "4KiB" {
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
			for _, fw := range frameworks {
				name := fw.name + "/" + kind.name + "/" + size.name
				benchmarkBody(b, name, "", fw, cargoOf(kind, size.bytes, whole))
				if size.name != "1MiB" || kind.name != "binary" {
					continue
				}
				benchmarkBody(b, name, "-chunked", fw, cargoOf(kind, size.bytes, chunked))
				if fw.name == "fiber" {
					benchmarkBody(b, name, "-streamed", fw, cargoOf(kind, size.bytes, streamed))
				}
			}
		}
	}
}

func benchmarkBody(b *testing.B, name, suffix string, fw framework, c cargo) {
	work := workload{distinct: true, executed: true, want: wantCreated}
	b.Run(name+"/bare"+suffix, func(b *testing.B) { measureBody(b, fw, nil, c, work) })
	b.Run(name+"/guarded"+suffix, func(b *testing.B) {
		on := openMemory(b, work.records(b.N))
		measureBody(b, fw, on.engine().MustGuard(core.Policy{}), c, work)
		// Each was another operation, so the body counts up to the number at its end.
		require.Equal(b, work.records(b.N), on.records(b))
	})
}

func measureBody(b *testing.B, fw framework, g *core.Guard, c cargo, work workload) {
	b.Helper()
	h := &handler{keeps: true}
	client := fw.mount(h, g)()
	client.carry(c)
	b.SetBytes(int64(len(c.body)))
	work.measure(b, h, client)
	require.Equal(b, len(c.body), h.received)
}
