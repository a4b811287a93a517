package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/race"
)

// TestAllocations: a call allocates a context that hides the deadline, and a string of arguments. A replay also allocates what
// the client reads, and the result. The client's own goroutines are counted in.
func TestAllocations(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	s := openURL(t, backend.Redis(t), redisstore.Config{}) // one connection
	result := make([]byte, 200)
	const runs = 1000
	prefix := store.NewOwner().String()
	keys := make([]string, 0, runs+1)
	for i := range runs + 1 {
		keys = append(keys, prefix+strconv.Itoa(i))
	}
	begin(t, s, prefix) // the connection is made
	next := 0
	operation := testing.AllocsPerRun(runs, func() {
		c := newClaim()
		_, err1 := s.Acquire(t.Context(), keys[next], c)
		err2 := s.Complete(t.Context(), keys[next], c.Owner, result, time.Minute)
		if next++; err1 != nil || err2 != nil {
			t.Error(err1, err2)
		}
	})
	c := newClaim()
	replay := testing.AllocsPerRun(runs, func() {
		if g, err := s.Acquire(t.Context(), keys[0], c); err != nil || g.State != store.Done || len(g.Result) != len(result) {
			t.Error(g.State, err)
		}
	})
	t.Logf("operation %v, replay %v", operation, replay)
	require.LessOrEqual(t, operation, 6.0)
	require.LessOrEqual(t, replay, 6.0)
}
