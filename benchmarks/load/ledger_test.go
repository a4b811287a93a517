package load

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheLedgerFindsEachFault(t *testing.T) {
	first := answer{status: 201, body: 1}
	replay := answer{status: 201, replayed: true, body: 1}
	conflict := answer{status: 409, retryAfter: true}
	once := []map[uint64]uint64{{0: 1}}
	for _, c := range []struct {
		name    string
		answers []answer // all to operation 0
		done    []map[uint64]uint64
		bare    bool
		want    string // empty: all is well
	}{
		{name: "once", answers: []answer{first}, done: once},
		{name: "replayed", answers: []answer{first, replay, replay}, done: once},
		{name: "in any order", answers: []answer{replay, conflict, first}, done: once},
		{name: "on the other process", answers: []answer{first, replay}, done: []map[uint64]uint64{{}, {0: 1}}},
		{name: "bare", answers: []answer{first, {status: 201, body: 2}}, done: []map[uint64]uint64{{0: 2}}, bare: true},

		{"carried out twice", []answer{first, replay}, []map[uint64]uint64{{0: 2}}, false, "carried out 2 times"},
		{"carried out by two processes", []answer{first, replay}, []map[uint64]uint64{{0: 1}, {0: 1}}, false, "carried out 2 times"},
		{"never carried out", []answer{first}, []map[uint64]uint64{{}}, false, "carried out 0 times"},
		{"two first answers", []answer{first, first}, once, false, "not marked as replayed"},
		{"no first answer", []answer{replay}, once, false, "no answer to operation 0 was its first"},
		{"another answer", []answer{first, {status: 201, replayed: true, body: 2}}, once, false, "answers that differ"},
		{"409 without Retry-After", []answer{first, {status: 409}}, once, false, "without Retry-After"},
		{"409 for the only request", []answer{conflict}, once, false, "was asked for once and got 409"},
		{"503", []answer{first, {status: 503}}, once, false, "answered with 503"},
		{"200", []answer{first, {status: 200, body: 1}}, once, false, "answered with 200"},
		{"what nobody has asked for", []answer{first}, []map[uint64]uint64{{0: 1, 7: 1}}, false, "nobody has asked"},
		{"bare, and not each one", []answer{first, first}, once, true, "carried out 1 times, without a guard, for 2 requests"},
		{"bare, and replayed", []answer{first, replay}, []map[uint64]uint64{{0: 2}}, true, "replayed: true"},
		{"bare, and refused", []answer{first, conflict}, []map[uint64]uint64{{0: 2}}, true, "answered with 409"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(0, c.bare, 1)
			require.Zero(t, l.next())
			l.operations[0].asked = int32(len(c.answers))
			for _, a := range c.answers {
				l.answered(0, a)
			}
			err := l.settle(c.done)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			var outcome *OutcomeError
			require.ErrorAs(t, err, &outcome)
			assert.ErrorContains(t, err, c.want)
			assert.NotZero(t, outcome.Faults)
		})
	}
}

func TestFaultsAreCountedAndTheFirstTenKept(t *testing.T) {
	l := newLedger(0, false, 1)
	for range 100 {
		l.answered(l.next(), answer{status: 201})
	}
	var outcome *OutcomeError
	require.ErrorAs(t, l.settle([]map[uint64]uint64{{}}), &outcome)
	assert.Equal(t, 100, outcome.Faults)
	assert.Len(t, outcome.First, 10)
}

func TestTheShareOfDuplicatesIsThatOfThePlan(t *testing.T) {
	for _, share := range []float64{0, 0.1, 0.9} {
		const n = 20000
		l, same := newLedger(share, false, 1), newLedger(share, false, 1)
		again := 0
		seen := map[uint64]bool{}
		for range n {
			operation := l.next()
			require.Equal(t, operation, same.next(), "the seed decides")
			if seen[operation] {
				again++
				require.Less(t, len(l.operations)-1-int(operation), recent)
			}
			seen[operation] = true
		}
		assert.InDelta(t, share, float64(again)/n, 0.01)
		assert.Len(t, l.operations, n-again)
	}
}
