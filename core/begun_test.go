package core_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// TestBegun: all attempts of an operation know when it was begun; the next operation was begun later.
func TestBegun(t *testing.T) {
	bubble(t, "attempts", func(t *testing.T) {
		s := open(t, newStore(t), core.Policy{Record: core.Record{RememberAbandoned: 48 * time.Hour}}, "s1")
		first := time.Now()
		begins := func(want time.Time, end func(*core.Run) adapter.Capture) {
			t.Helper()
			s.pay("5", func(r *core.Run) adapter.Capture {
				for range 2 {
					begun, err := r.Begun(t.Context())
					require.NoError(t, err)
					assert.Zero(t, begun.Sub(want), "attempt %d", r.Attempt())
				}
				return end(r)
			})
			require.NotNil(t, s.run)
			time.Sleep(25 * time.Hour)
		}
		begins(first, status(502))
		begins(first, func(r *core.Run) adapter.Capture { r.Abandon(); return answer(502, "") })
		begins(first, status(402))
		begins(first.Add(75*time.Hour), status(201))
		begins(first.Add(100*time.Hour), status(201))
	})

	_, err := core.RunFrom(t.Context()).Begun(t.Context())
	require.ErrorIs(t, err, codes.NoRun)
}

// TestBegunIsNotGuessed: a later attempt whose store does not tell has an error. A time that is too late would let a key be sent
// that the other side has forgotten.
func TestBegunIsNotGuessed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*store.Capabilities)
		during func(t *testing.T, records store.Store, r *core.Run)
		err    error
	}{
		"no inspector": {func(c *store.Capabilities) { c.Inspect = nil }, nil, nil},
		"the record is gone": {nil, func(t *testing.T, records store.Store, r *core.Run) {
			require.NoError(t, records.Complete(t.Context(), r.Key().Raw(), r.Owner(), nil, 0))
		}, store.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			records := &spy{Store: newStore(t)}
			can := records.Store.Capabilities()
			records.can = &can
			if tc.change != nil {
				tc.change(records.can)
			}
			s := open(t, records, core.Policy{}, "s1")
			s.pay("5", func(r *core.Run) adapter.Capture { r.Abandon(); return answer(502, "") })
			s.pay("5", func(r *core.Run) adapter.Capture {
				if tc.during != nil {
					tc.during(t, records, r)
				}
				_, err := r.Begun(t.Context())
				require.Error(t, err)
				if tc.err != nil {
					require.ErrorIs(t, err, tc.err)
				}
				return answer(201, "")
			})
			require.EqualValues(t, 2, s.run.Attempt())
		})
	}
}
