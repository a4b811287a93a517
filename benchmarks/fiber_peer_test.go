package benchmarks

import (
	"testing"
	"time"

	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/gofiber/fiber/v2/middleware/session"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
)

// BenchmarkFiberPeer sets a guard on Fiber beside Fiber's own idempotency middleware, each
// with its in-process store and with keys of 36 bytes.
func BenchmarkFiberPeer(b *testing.B) {
	// own mounts Fiber's middleware in its default configuration, but for the storage: it is
	// the same, taken from where it can be closed again.
	own := func(b *testing.B, h *handler) client {
		storage := session.New().Storage
		b.Cleanup(func() { require.NoError(b, storage.Close()) })
		return mountFiber(h, idempotency.ConfigDefault.KeyHeader, idempotency.New(idempotency.Config{
			Storage: storage, Lifetime: 24 * time.Hour, // as ours
		}))()
	}
	guarded := func(policy core.Policy) func(*testing.B, *handler) client {
		return func(b *testing.B, h *handler) client {
			guard := openMemory(b, rehearsed+b.N).engine().MustGuard(policy)
			return mountFiber(h, core.DefaultKeyHeader, fiberidem.New(guard))()
		}
	}
	ours := guarded(core.ClientKey())
	// like knows a request by its key alone, as Fiber's middleware does: with that key, any
	// other body gets the first one's answer.
	like := core.ClientKey()
	like.IgnoreFingerprint = true
	alike := guarded(like)
	first := workload{keyed: true, distinct: true, executed: true, want: wantCreated}
	for _, bench := range []struct {
		name   string
		mount  func(b *testing.B, h *handler) client
		replay bool
		work   workload
	}{
		{"bare", func(_ *testing.B, h *handler) client { return mountFiber(h, core.DefaultKeyHeader)() }, false, first},
		{"own-first", own, false, first},
		{"ours-first", ours, false, first},
		{"ours-unchecked-first", alike, false, first},
		{"own-replay", own, true, workload{keyed: true, want: wantCreated}}, // it does not say that it replays
		{"ours-replay", ours, true, workload{keyed: true, want: wantReplayed}},
		{"ours-unchecked-replay", alike, true, workload{keyed: true, want: wantReplayed}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := &handler{}
			c := bench.mount(b, h)
			if bench.replay {
				if got := c.ask(newClientKeys(1).at(0), 0); got != wantCreated || h.executed != 1 {
					b.Fatalf("the first request was answered with %+v", got)
				}
			}
			bench.work.measure(b, h, c)
		})
	}
}
