package canon_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/canon"
)

// TestNothingLeaks: derivations of every shape at once, in memory that is used again and
// poisoned in between, have the digest and the text that each has in fresh memory.
func TestNothingLeaks(t *testing.T) {
	type derivation struct {
		rules        canon.Rules
		in           canon.Input
		digest, text string
		info         canon.Info
	}
	var all []derivation
	for _, s := range shapes(t) {
		for _, size := range []int{100, 3000, 20_000} {
			d := derivation{rules: s.rules, in: s.make(size)}
			d.text, d.digest, d.info = canon.Fresh(&d.rules, &d.in)
			all = append(all, d)
		}
	}
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			for _, at := range rand.New(rand.NewPCG(1, seed)).Perm(len(all)) {
				d := &all[at]
				canon.PoisonPool()
				digest, info := d.rules.AppendDigest(nil, &d.in)
				canon.PoisonPool()
				text, textInfo := d.rules.AppendCanonical(nil, &d.in)
				canon.PoisonPool()
				if string(digest) != d.digest || string(text) != d.text || info != d.info || textInfo != d.info {
					t.Errorf("%.60q has the digest %s and the text %.60q; in fresh memory %s and %.60q", d.in.Body,
						digest, text, d.digest, d.text)
					return
				}
			}
		})
	}
	wg.Wait()
}

// What a large request has needed is given back, and nothing of the request itself is kept.
func TestLargeMemoryIsNotKept(t *testing.T) {
	for name, in := range map[string]canon.Input{
		"members":  jsonInput(manyMembers(100_000)),
		"pairs":    {RawQuery: strings.Repeat("b=1&a=2&", 50_000)},
		"consumed": {ContentType: typeJSON, Body: []byte(`{"b":1,"a":2}`), Consumed: []string{"c"}},
	} {
		largest, requests := canon.Kept(&canon.Rules{}, &in)
		require.LessOrEqual(t, largest, 2<<20, name)
		require.Empty(t, requests, name)
	}
}
