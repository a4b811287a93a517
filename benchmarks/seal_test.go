package benchmarks

import (
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/core"
)

// BenchmarkSeal is what a Seal costs a request on net/http, with the store in memory.
func BenchmarkSeal(b *testing.B) {
	key := func(name string) []byte { return []byte(name + strings.Repeat("0123456789", 4)) }
	for _, v := range variants {
		if slices.Contains([]string{"conflict", "key-reused"}, v.name) {
			continue // nothing is stored or opened
		}
		for name, seal := range map[string]*core.Seal{"plain": nil,
			"sealed": {DigestKey: key("digest"), Keys: []core.Secret{{Name: "2026-11", Key: key("a")}}}} {
			b.Run(v.name+"/"+name, func(b *testing.B) {
				on := openMemory(b, v.records(b.N))
				on.seal = seal
				v.run(b, frameworkNamed(b, "nethttp"), on)
			})
		}
	}
}
