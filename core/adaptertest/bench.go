package adaptertest

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/sign"
)

// BenchVerify measures requests with 200 bytes of body over a connection, bare and with the adapter's Verify in front.
// added-allocs/op is what Verify adds to the allocations of the bare ones.
func BenchVerify(b *testing.B, h Harness) {
	m := good.with(body(`{"note":"`+strings.Repeat("n", 189)+`"}`), clientKeyed("k-1")).then(kept).message()
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		Keys: ring(), Nonces: anyNonce{}, NonceQuota: math.MaxInt, MaxNonces: math.MaxInt, Clock: func() time.Time { return noon },
	}))
	route := Route{Handler: func(c Call) error {
		body, err := c.Body()
		if err != nil || len(body) != 200 {
			return c.NoContent(400)
		}
		return c.NoContent(204)
	}}
	var allocs [2]float64
	for i, name := range []string{"bare", "verified"} {
		if name == "verified" {
			route.Verifiers = []*sign.Verifier{verifier}
		}
		c, err := dial(h.Start(b, App{Routes: []Route{route}}))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() }) // before the server is stopped
		_ = c.SetDeadline(time.Time{})
		send := func() {
			c.write(m)
			if got, err := c.receive(m.method); err != nil || got.status != 204 {
				b.Fatalf("%v (%v)", got, err)
			}
		}
		allocs[i] = testing.AllocsPerRun(1000, send)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				send()
			}
			b.ReportMetric(allocs[i]-allocs[0], "added-allocs/op")
		})
	}
}

// anyNonce takes every nonce for unused, so that one message is good for ever.
type anyNonce struct{}

func (anyNonce) Use(context.Context, string, string, time.Duration) (bool, error) { return true, nil }

func (anyNonce) Limits() (capacity int, ownTimeout bool) { return 0, true }
