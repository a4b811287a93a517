package core

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// stubborn is a store whose answers never change. It ends all tests if a caller goes on asking: that one would hang.
type stubborn struct {
	store.Store
	grant store.Grant
	renew error
	calls atomic.Int64
}

func (s *stubborn) Capabilities() store.Capabilities { return store.Capabilities{} }

func (s *stubborn) count() {
	if s.calls.Add(1) > 1000 {
		panic("a caller asks the store for ever")
	}
}

func (s *stubborn) Acquire(context.Context, string, store.Claim) (store.Grant, error) {
	s.count()
	return s.grant, nil
}

func (s *stubborn) Renew(context.Context, string, store.Owner, time.Duration) error {
	s.count()
	return s.renew
}

func (s *stubborn) Complete(context.Context, string, store.Owner, []byte, time.Duration) error {
	return nil
}

// A caller that meets an abandoned run asks the store a few times at most, also if the run stays abandoned.
func TestAbandonedRunIsAskedForAFewTimes(t *testing.T) {
	fault := errors.New("out of order")
	reconciled := func(v Verdict, err error) TaskPolicy {
		return TaskPolicy{Record: Record{Abandoned: Uncertain(func(context.Context, Uncertainty) (Verdict, error) { return v, err })}}
	}
	for name, tc := range map[string]struct {
		policy  TaskPolicy
		expired bool
		want    codes.Code
		calls   int64
	}{
		"the store keeps it":        {policy: TaskPolicy{}, want: codes.KeyReused, calls: 1},
		"an expired token":          {policy: TaskPolicy{}, expired: true, want: codes.KeyReused, calls: 2},
		"nobody knows":              {policy: TaskPolicy{Record: Record{Abandoned: Uncertain(nil)}}, want: codes.Uncertain, calls: 1},
		"the verdict is unknown":    {policy: reconciled(Unknown(), nil), want: codes.Uncertain, calls: 1},
		"the verdict fails":         {policy: reconciled(RunAgain(), fault), want: codes.Uncertain, calls: 1},
		"run again":                 {policy: reconciled(RunAgain(), nil), want: codes.KeyReused, calls: 2},
		"finished by somebody else": {policy: reconciled(Finished[[]byte](nil), nil), want: codes.KeyReused, calls: 3},
		"finished with a bad value": {policy: reconciled(Finished(&Response{Status: 200}), nil), want: codes.Uncertain, calls: 1},
	} {
		s := &stubborn{grant: store.Grant{State: store.Abandoned, Attempt: 1, Fingerprint: "f", Remaining: time.Hour}}
		tc.policy.Name = "n"
		guard := MustNew(Config{Service: "shop", Store: s}).MustTask(tc.policy).guard
		d := guard.decide(t.Context(), &identity{key: Key{raw: "k"}, fingerprint: "f", expired: tc.expired})
		assert.Equal(t, toRefuse, d.action, name)
		assert.Equal(t, tc.want, d.refusal.Code, name)
		assert.Equal(t, tc.calls, s.calls.Load(), name)
	}
}

// A result that is handed over is a copy: the run's memory is used again.
func TestHandedOverResultIsACopy(t *testing.T) {
	g := MustNew(Config{User: UserFromHeader("X-User")}).MustGuard(Policy{})
	c, result := newClaimant(t.Context(), g, &identity{forgets: true}), []byte("first")
	c.join(t.Context())
	w := c.waiter
	g.engine.handOver(Key{}, store.Grant{State: store.Done, Result: result}, false)
	copy(result, "other")
	grant, err := w.answer()
	assert.NoError(t, err)
	assert.Equal(t, "first", string(grant.Result))
}

// The list of runs holds those that have begun and not ended, in whatever order they end.
func TestRunsEndInAnyOrder(t *testing.T) {
	guard := &Guard{policy: Policy{Record: Record{Lease: time.Hour}}}
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var l runs
		var all [3]*runContext
		left := map[*runContext]bool{}
		for i := range all {
			all[i] = &runContext{Run: Run{guard: guard}, started: time.Now()}
			left[all[i]] = true
			require.True(t, l.begin(all[i], time.Now()))
		}
		l.timer.Stop()
		for _, i := range order {
			l.endLease(all[i])
			l.endLease(all[i]) // which does nothing
			delete(left, all[i])
			listed := map[*runContext]bool{}
			for c := l.head; c != nil && len(listed) < len(all); c = c.next {
				listed[c] = true
			}
			require.Equal(t, left, listed, order)
		}
		require.Nil(t, l.head, order)
	}
}

// Leases are renewed at a third of their time, and when that fails, at a tenth, until they end.
func TestRenewalsArePaced(t *testing.T) {
	for name, tc := range map[string]struct {
		renew error
		calls int64
		lasts time.Duration
	}{
		"renewed":     {nil, 59, time.Minute - time.Millisecond},
		"not renewed": {errors.New("connection refused"), 8, 3 * time.Second},
		"lost":        {store.ErrLost, 1, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stubborn{grant: store.Grant{State: store.Acquired, Attempt: 1}, renew: tc.renew}
			task := MustNew(Config{Service: "shop", Store: s}).MustTask(TaskPolicy{Name: "n", Record: Record{Lease: 3 * time.Second}})
			begun := time.Now()
			_, _ = Do(t.Context(), task, Call{Key: "k"}, func(ctx context.Context) (int, error) {
				sleep(ctx, time.Minute-time.Millisecond)
				assert.Equal(t, tc.lasts, time.Since(begun), name)
				return 0, nil
			})
			time.Sleep(time.Minute)
			assert.Equal(t, 1+tc.calls, s.calls.Load(), "%s: nothing is renewed when nothing runs", name)
		})
	}
}

// Whatever can make two fingerprints differ makes two raws differ, and nothing can move from one part of a request to
// another unnoticed.
func TestRawTellsRequestsApart(t *testing.T) {
	require.Equal(t, 7, reflect.TypeFor[canon.Input]().NumField(), "a new part of the input must be hashed, and drawn below")

	e := MustNew(Config{User: SharedByAllCallers()})
	g, other := e.MustGuard(ClientKey()), e.MustGuard(ClientKey())
	texts := []string{"", "a", "\x01a"}
	pairs := [][]adapter.Pair{nil, {{}}, {{Name: "a"}}, {{Value: "a"}}, {{Name: "a"}, {}}, {{Name: "a", Value: "a"}}}
	encodings := append(texts, "\x00\x02")
	names := [][]string{nil, {""}, {"", ""}, {"a"}, {"", "a"}, {"\x01a"}}
	seen := map[uint64]canon.Input{}
	for _, params := range pairs {
		for _, query := range texts {
			for _, contentType := range texts {
				for _, encoding := range encodings {
					for _, header := range pairs {
						for _, consumed := range names {
							for _, body := range texts {
								in := canon.Input{PathParams: params, RawQuery: query, ContentType: contentType, ContentEncoding: encoding,
									Header: header, Consumed: consumed, Body: []byte(body)}
								raw, _ := g.raw([]byte("any key"), &in)
								if before, is := seen[raw]; is {
									t.Fatalf("one raw for %+v and %+v", before, in)
								}
								seen[raw] = in
								again, _ := g.raw(nil, &in)
								require.Equal(t, raw, again, "the key is not a part of it")
								of, _ := other.raw(nil, &in)
								require.NotEqual(t, raw, of, "another guard has other rules")
							}
						}
					}
				}
			}
		}
	}
	require.Len(t, seen, 6*3*3*4*6*6*3)
}
