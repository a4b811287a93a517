package core_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// A finisher finishes its runs in order, each once, also if an answer can't be delivered; and none of them
// is done after a panic.
func TestFinisher(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	for _, returned := range []bool{true, false} {
		g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
		var f adapter.Finisher
		require.NoError(t, f.Finish(returned))
		require.False(t, f.Deferred())

		var calls []*call
		var order []int
		for i, err := range []error{first, second} {
			c := post(strconv.Itoa(i), nil).doing(deferring)
			c.gone = err
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

type closing struct {
	io.Reader
	err error
}

func (c closing) Close() error { return c.err }

// A run whose answer is a stream is done if that was read to its end, and else abandoned.
func TestStream(t *testing.T) {
	gone := errors.New("closed")
	for name, tc := range map[string]struct {
		body   io.Reader
		length int64
		read   int
		err    error // of Close
		done   bool
	}{
		"to its end":              {strings.NewReader("made"), -1, 100, nil, true},
		"not to its end":          {strings.NewReader("made"), -1, 2, nil, false},
		"all of its length":       {strings.NewReader("made"), 4, 2, nil, true},
		"more than its length":    {strings.NewReader("made"), 3, 2, nil, true},
		"less than its length":    {strings.NewReader("made"), 5, 100, nil, false},
		"none, of none":           {strings.NewReader(""), 0, 0, nil, true},
		"none, of unknown length": {strings.NewReader(""), -1, 0, nil, false},
		"a body that is closed":   {closing{strings.NewReader("made"), gone}, 4, 2, gone, true},
	} {
		var kinds []core.Kind
		engine := core.MustNew(core.Config{User: byUser,
			Observe: func(_ context.Context, ev core.Event) { kinds = append(kinds, ev.Kind) }})
		c := post("{}", nil).withKey("k")
		captured := answer(201, "")
		captured.Incomplete = true
		own := []byte("own") // the framework's, as it may be
		captured.Response.Header = []core.Field{{Name: unsafe.String(&own[0], len(own)), Value: unsafe.String(&own[0], len(own))}}
		var header []core.Field
		p := core.ClientKey()
		p.Failed = func(r *core.Response) bool {
			header = r.Header
			return core.FailedByStatus(r)
		}
		var s *adapter.Stream
		c.handler = func(context.Context) adapter.Capture {
			c.held = captured.Response
			s = adapter.NewStream(tc.body, tc.length, captured)
			return adapter.Capture{Ending: adapter.Deferred}
		}
		serve(t, engine.MustGuard(p), c)
		s.Defer(c.pending)
		copy(own, "new")
		captured.Response.Header[0] = core.Field{}
		for range tc.read {
			if _, err := s.Read(make([]byte, 2)); err != nil {
				require.Equal(t, io.EOF, err, name)
			}
		}
		for i := range 2 {
			require.Equal(t, tc.err, s.Close(), name)
			ended := core.RunAbandoned
			if tc.done {
				ended = core.Completed
			}
			assert.Equal(t, []core.Kind{core.StoreIsLocal, core.Started, ended}, kinds, "%s, closed %d times", name, i+1)
		}
		assert.Equal(t, []core.Field{{Name: "own", Value: "own"}}, header, name)
	}
}
