package sortedparams

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// Messages that are verified at once share nothing, nor does one share anything with an observer that keeps its event.
func TestManyMessagesAtOnce(t *testing.T) {
	var all, observers sync.WaitGroup
	v := sign.Must(sign.NewVerifier(sign.Config{
		Keys: sign.Must(sign.NewRing(newKey("demo"))), Scheme: newScheme(t, Options{}), Clock: fixedClock, Nonces: fixture.AnyNonce{},
		Observe: func(_ context.Context, e sign.Event) { observers.Go(func() { e.SigningString() }) },
	}))
	for i := range 8 {
		r := newRequest(t, "POST", "/", formType, fmt.Sprintf("amount=%d&to=%d&note=%d", i, i, i))
		signBy(t, r, Options{}, newKey("demo"))
		all.Go(func() {
			for range 300 {
				if _, err := v.Verify(t.Context(), fixture.Message(r)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	observers.Wait()
}
