package benchmarks

import (
	"io"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/gofiber/fiber/v2/middleware/session"
	idempotency3 "github.com/gofiber/fiber/v3/middleware/idempotency"
	session3 "github.com/gofiber/fiber/v3/middleware/session"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// ownFiber mounts Fiber's middleware in its default configuration, but for the name of the field, and for the
// storage: it is the same, taken from where it can be closed again.
func ownFiber(o operation) (service, io.Closer) {
	storage := session.New().Storage
	return mountFiber(o, idempotency.New(idempotency.Config{
		KeyHeader: core.DefaultKeyHeader, Storage: storage, Lifetime: 24 * time.Hour, // as ours
	})), storage
}

func ownFiber3(o operation) (service, io.Closer) {
	storage := session3.NewStore().Storage
	return mountFiber3(o, idempotency3.New(idempotency3.Config{
		KeyHeader: core.DefaultKeyHeader, Storage: storage, Lifetime: 24 * time.Hour,
	})), storage
}

// BenchmarkFiberPeer and BenchmarkFiber3Peer set a guard on Fiber beside Fiber's own idempotency middleware, each
// with its in-process store and with keys of 36 bytes.
func BenchmarkFiberPeer(b *testing.B)  { benchmarkPeer(b, frameworkNamed(b, "fiber")) }
func BenchmarkFiber3Peer(b *testing.B) { benchmarkPeer(b, frameworkNamed(b, "fiber3")) }

func benchmarkPeer(b *testing.B, fw framework) {
	bare := func(_ *testing.B, h *handler) service { return fw.mount(h, nil) }
	own := func(b *testing.B, h *handler) service {
		s, storage := fw.own(h)
		b.Cleanup(func() { require.NoError(b, storage.Close()) })
		return s
	}
	guarded := func(policy core.Policy) func(*testing.B, *handler) service {
		return func(b *testing.B, h *handler) service {
			return fw.mount(h, openMemory(b, rehearsed+b.N).engine().MustGuard(policy))
		}
	}
	ours := guarded(core.ClientKey())
	// like knows a request by its key alone, as Fiber's middleware does: with that key, any
	// other body gets the first one's answer.
	like := core.ClientKey()
	like.Key = core.Header(core.Required, core.IgnoreFingerprint())
	alike := guarded(like)
	first := workload{keyed: true, distinct: true, executed: true, want: wantCreated}
	for _, bench := range []struct {
		name   string
		mount  func(b *testing.B, h *handler) service
		replay bool
		work   workload
	}{
		{"bare", bare, false, first},
		{"own-first", own, false, first},
		{"ours-first", ours, false, first},
		{"ours-unchecked-first", alike, false, first},
		{"own-replay", own, true, workload{keyed: true, want: wantCreated}}, // it does not say that it replays
		{"ours-replay", ours, true, workload{keyed: true, want: wantReplayed}},
		{"ours-unchecked-replay", alike, true, workload{keyed: true, want: wantReplayed}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := &handler{}
			c := bench.mount(b, h).client()
			if bench.replay {
				if got := c.ask(newClientKeys(1).at(0), 0); got != wantCreated || h.executed != 1 {
					b.Fatalf("the first request was answered with %+v", got)
				}
			}
			bench.work.measure(b, h, c)
		})
	}
}
