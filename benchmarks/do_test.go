package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem/core"
)

// BenchmarkDo is what an operation costs that is not HTTP.
func BenchmarkDo(b *testing.B) {
	e := openMemory(b, b.N).engine()
	task := e.MustTask(core.TaskPolicy{Name: "task", Record: core.Record{Lease: time.Minute}})
	keys := newClientKeys(b.N)
	ran := 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, err := core.Do(context.Background(), task, core.Call{Key: keys.at(i)},
			func(context.Context) ([]byte, error) { ran++; return nil, nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if ran != b.N {
		b.Fatalf("ran %d times in %d", ran, b.N)
	}
}
