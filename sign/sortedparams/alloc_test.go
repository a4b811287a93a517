//go:build !race

// The race detector makes sync.Pool drop what it is given at random.

package sortedparams

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// What is verified takes few allocations: one of the body's text, one of each value with escapes (a few in
// JSON), and those of the result.
func TestAllocations(t *testing.T) {
	key := newKey("demo")
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Scheme: newScheme(t, Options{}), Clock: fixedClock, Nonces: anyNonce{}})
	for name, c := range map[string]struct {
		target, contentType, body string
		want                      float64
	}{
		"query": {"/?" + formBody, "", "", 6},
		"form":  {"/", formType, formBody, 7},
		"JSON":  {"/", jsonType, jsonBody, 7},
		"XML":   {"/", xmlType, xmlBody, 5},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest(t, "POST", c.target, c.contentType, c.body)
			signBy(t, r, Options{}, key)
			m := fixture.Message(r)
			require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
				again := *m
				if _, err := v.Verify(t.Context(), &again); err != nil {
					panic(err)
				}
			}), c.want)
		})
	}
}
