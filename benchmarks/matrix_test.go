package benchmarks

import (
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// variant is a way in which a route is used.
type variant struct {
	name   string
	policy core.Policy
	first  bool // one request is sent before those that are measured
	within bool // they are sent while the handler runs for that one
	workload
}

var (
	wantCreated  = answer{status: 201, body: string(created)}
	wantReplayed = answer{status: 201, replayed: true, body: string(created)}
)

var variants = []variant{
	{
		name: "client-key-first", policy: core.ClientKey(),
		workload: workload{keyed: true, distinct: true, executed: true, want: wantCreated},
	},
	{
		name:     "parameter-key-first",
		workload: workload{distinct: true, executed: true, want: wantCreated},
	},
	{
		name: "replay", policy: core.ClientKey(), first: true,
		workload: workload{keyed: true, want: wantReplayed},
	},
	{
		name: "parameter-key-replay", first: true,
		workload: workload{want: wantReplayed},
	},
	{
		name: "conflict", policy: core.ClientKey(), first: true, within: true,
		workload: workload{keyed: true, want: answer{status: 409, body: string(codes.InProgress)}},
	},
	{
		name: "key-reused", policy: core.ClientKey(), first: true,
		workload: workload{keyed: true, number: 1, want: answer{status: 422, body: string(codes.KeyReused)}},
	},
}

// BenchmarkMatrix is what a request costs in each framework, with each store, by what it
// meets with. One client sends one request after the other.
func BenchmarkMatrix(b *testing.B) {
	for _, fw := range frameworks {
		b.Run(fw.name+"/bare/none", func(b *testing.B) {
			h := &handler{}
			workload{distinct: true, executed: true, want: wantCreated}.measure(b, h, fw.mount(h, nil).client())
		})
		for _, v := range variants {
			for _, s := range stores {
				if s.name != "memory" && fw.name != "gin" && v.name != "client-key-first" && v.name != "replay" {
					continue // a store does not know the framework
				}
				b.Run(fw.name+"/"+v.name+"/"+s.name, func(b *testing.B) {
					on := s.open(b, v.records(b.N))
					v.run(b, fw, on)
					if got, want := on.records(b), v.records(b.N); got != want {
						b.Fatalf("the store holds %d records, want %d", got, want)
					}
				})
			}
		}
	}
}

func (v variant) run(b *testing.B, fw framework, on backing) {
	h := &handler{}
	orders := fw.mount(h, on.engine().MustGuard(v.policy))
	if v.within {
		// The handler itself sends the duplicates: so it runs for as long as it takes.
		h.during = func() { v.measure(b, h, orders.client()) }
	}
	if v.first {
		key := ""
		if v.keyed {
			key = newClientKeys(1).at(0)
		}
		if got := orders.client().ask(key, 0); got != wantCreated {
			b.Fatalf("the first request was answered with %+v", got)
		}
	}
	if !v.within {
		v.measure(b, h, orders.client())
	}
}
