package fiberidem

import "github.com/idem-go/idem/internal/leakcheck"

// PoisonPools overwrites all memory that lies in the pool. What is in a pool is nobody's: if
// any of it turns up anywhere, or the race detector sees somebody else look at it, it was put
// back too early.
func PoisonPools() {
	x := exchanges.Get().(*exchange)
	leakcheck.Scribble(x)
	exchanges.Put(x)
}
