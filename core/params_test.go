package core_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
)

func TestFieldsAndExcludedPaths(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	for _, tc := range []struct {
		fields, excluded []string
		faults           int
	}{
		{[]string{"a"}, []string{"a"}, 1},
		{[]string{"a.b"}, []string{"a"}, 1},
		{[]string{"a.b"}, []string{"*"}, 1},
		{[]string{"a.*"}, []string{"a.*"}, 1},
		{[]string{"a.b.c"}, []string{"**.b"}, 1},
		{[]string{"**.b"}, []string{"**.b"}, 1},
		{[]string{"a", "b"}, []string{"b"}, 1},           // b is of no use
		{[]string{"a"}, []string{"b"}, 1},                // nor is this
		{[]string{`a\.b`}, []string{"a.b"}, 1},           // another name
		{[]string{"a", "b"}, []string{"a", "b", "c"}, 3}, // all at once
		{[]string{"a"}, []string{"a.b"}, 0},
		{[]string{"a.*"}, []string{"a.b"}, 0},
		{[]string{"a"}, []string{"**.b"}, 0},
		{[]string{"**.a"}, []string{"b"}, 0},
		{[]string{"**.a"}, []string{"b.c"}, 0}, // b.c.a
		{[]string{"**.a"}, []string{"*.*"}, 0}, // a
		{[]string{"items.*.sku"}, []string{"items.0"}, 0},
		{[]string{"items.*.sku"}, []string{"items.0.note"}, 1},
	} {
		_, err := e.Guard(core.Policy{Key: core.Params(core.Fields(tc.fields...), core.Exclude(tc.excluded...))})
		if tc.faults == 0 {
			assert.NoError(t, err, tc)
		} else {
			assert.Len(t, faultyFields(t, err), tc.faults, tc)
		}
	}
}
