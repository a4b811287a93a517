package core_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// undelivered is an exchange whose client has gone.
type undelivered struct {
	*call
	err error
}

func (u undelivered) Deliver([]core.Field) error {
	u.delivered++
	return u.err
}

// A finisher finishes its runs in order, each once, also if an answer can't be delivered; and none of them
// is done after a panic.
func TestFinisher(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	for _, returned := range []bool{true, false} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
		var f adapter.Finisher
		require.NoError(t, f.Finish(returned))
		require.False(t, f.Deferred())

		var calls []undelivered
		var order []int
		for i, err := range []error{first, second} {
			c := undelivered{post(strconv.Itoa(i), nil), err}
			c.handler = deferring
			require.NoError(t, g.Serve(t.Context(), c))
			f.Defer(c.pending, func(came bool) *adapter.Capture {
				assert.Equal(t, returned, came)
				order = append(order, i)
				if !came {
					return nil
				}
				final := answer(201, "rendered")
				return &final
			})
			calls = append(calls, c)
		}
		require.True(t, f.Deferred())
		err := f.Finish(returned)
		assert.Equal(t, []int{0, 1}, order)
		require.False(t, f.Deferred())
		require.NoError(t, f.Finish(returned), "there is nothing left")
		assert.Len(t, order, 2)
		for i, c := range calls {
			again := serve(t, g, post(strconv.Itoa(i), nil))
			assert.Equal(t, returned, again.replayed())
			if returned {
				assert.Equal(t, 1, c.delivered)
			} else {
				assert.Zero(t, c.delivered)
			}
		}
		if returned {
			assert.Equal(t, first, err)
		} else {
			assert.NoError(t, err)
		}
	}
}
