package guarded

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// Bench measures a framework with one route and a request of 200 bytes of body, bare and with Verify in front.
// added-allocs/op is what Verify adds to the allocations of the bare one.
func Bench(b *testing.B, h Harness) {
	m := order.with(`{"note":"` + strings.Repeat("n", 189) + `"}`).message()
	reached := 0
	app := App{App: signtest.App{Pattern: "/orders/:id", Handle: func(seen signtest.Seen) []byte {
		if len(seen.Body) == 200 {
			reached++
		}
		return nil
	}}}
	measure := func(serve func(), metric func(b *testing.B)) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			reached = 0
			n := 0
			for b.Loop() {
				n++
				serve()
			}
			if reached != n {
				b.Fatalf("of %d requests %d have reached the handler with their body", n, reached)
			}
			metric(b)
		}
	}
	bare := h.Direct(b, app, m.text)
	app.Verifier = sign.MustVerifier(sign.Config{Keys: sign.MustRing(demo), Nonces: everNew{}, NonceQuota: math.MaxInt, MaxNonces: math.MaxInt})
	verified := h.Direct(b, app, m.text)
	added := testing.AllocsPerRun(1000, verified) - testing.AllocsPerRun(1000, bare)

	b.Run("bare", measure(bare, func(*testing.B) {}))
	b.Run("verified", measure(verified, func(b *testing.B) { b.ReportMetric(added, "added-allocs/op") }))
}

// everNew has seen no nonce yet, so that one message is good for ever.
type everNew struct{}

func (everNew) Use(context.Context, string, string, time.Duration) (bool, error) { return true, nil }
