package sortedparams

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// Memory that is used again holds nothing of the message before.
func TestParamsAreForgotten(t *testing.T) {
	l := new(params)
	require.NoError(t, l.reserve("key", ""))
	require.NoError(t, l.addPairs("amount=5&to=bob&A=&b%5B%5D="))
	require.NoError(t, l.finish(&Options{SecretName: "key"}))
	l.reset()
	require.Empty(t, l.list)
	require.Empty(t, l.reserved)
	require.Empty(t, l.alike)
	require.Empty(t, l.base)
	for _, p := range l.list[:cap(l.list)] {
		require.Zero(t, p)
	}
	for _, name := range l.reserved[:cap(l.reserved)] {
		require.Zero(t, name)
	}
	for _, a := range l.alike[:cap(l.alike)] {
		require.Zero(t, a)
	}
	require.NoError(t, l.addPairs("key=6"), "which is no longer reserved")
	require.NoError(t, l.finish(new(Options)))
	require.Equal(t, "key=6", string(l.base))

	l.reset()
	require.NoError(t, l.add("a", string(make([]byte, maxBase))))
	require.NoError(t, l.finish(new(Options)))
	l.reset()
	require.Nil(t, l.base, "large buffers are not kept")
}

// Memory that is used again does not hold the secret either.
func TestTheSecretIsWiped(t *testing.T) {
	for _, o := range []Options{{}, {InsecureMD5: true}} {
		s := newScheme(t, o)
		r := newRequest(t, "POST", "/", formType, "amount=5")
		signBy(t, r, o, newKey("demo"))
		sig := new(sign.Signature)
		require.NoError(t, s.Parse(fixture.Message(r), sig))
		l := sig.State.(*params)
		signed := string(l.base)
		require.NoError(t, s.Check(nil, sig, newKey("demo")))
		require.Equal(t, signed, string(l.base))
		require.Greater(t, cap(l.base), len(l.base)+len(designSecret))
		require.NotContains(t, string(l.base[:cap(l.base)]), designSecret)
		for _, b := range l.base[len(l.base):cap(l.base)] {
			require.Zero(t, b, "no part of it either")
		}
	}
}

// Messages that are verified at once share nothing, nor does one share anything with an observer that keeps its event.
func TestManyMessagesAtOnce(t *testing.T) {
	var all, observers sync.WaitGroup
	v := sign.MustVerifier(sign.Config{
		Keys: sign.MustRing(newKey("demo")), Scheme: newScheme(t, Options{}), Clock: fixedClock, Nonces: anyNonce{},
		Observe: func(_ context.Context, e sign.Event) { observers.Go(func() { e.SigningString() }) },
	})
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
