package core_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
)

// One who came too late may be answered by the store before one who came in time: each waits among his own, for a late
// one takes over nothing unasked, and what he finds is no answer to the others.
func TestThoseInTimeAndThoseTooLateWaitApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger atomic.Int64
		slow := make(chan bool, 1)
		store := &spy{Store: newStore(t)}
		store.acquire = func(context.Context) error {
			select {
			case <-slow:
				time.Sleep(time.Second)
			default:
			}
			return nil
		}
		p := checkout(tokensFor(tokenSecret))
		p.Duplicate = core.Wait(time.Minute)
		g := core.MustNew(core.Config{User: byUser, Store: store, StoreTimeout: 10 * time.Second}).MustGuard(p)
		token := tokenFor(t, g, "alice")
		time.Sleep(core.DefaultTokenLifetime - time.Millisecond)

		crash := submit(token, "", &ledger).doing(func(ctx context.Context) adapter.Capture {
			time.Sleep(10 * time.Second)
			core.RunFrom(ctx).Abandon()
			return answer(500, "")
		})
		go serve(t, g, crash)
		synctest.Wait()
		inTime, late := submit(token, "", &ledger), submit(token, "", &ledger)
		slow <- true
		go serve(t, g, inTime)
		synctest.Wait()
		time.Sleep(2 * time.Millisecond)
		go serve(t, g, late)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		statuses := []int{inTime.response.Status, late.response.Status}
		assert.Equal(t, []int{201, 201}, statuses, "%s %s", inTime.code(), late.code())
		assert.EqualValues(t, 1, ledger.Load())
	})
}

// Between the question whether a token was used in time and the takeover, another may have taken over, and crashed as
// well.
func TestAnOldTokenTakesOverWhatAnotherHasTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &spy{Store: newStore(t)}
		g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(checkout(tokensFor(tokenSecret)))
		token := tokenFor(t, g, "alice")
		serve(t, g, submit(token, "", nil).doing(abandoning))
		time.Sleep(core.DefaultTokenLifetime)
		records.asked = func(key string, claim store.Claim) {
			if records.acquires.Load() != 3 { // the takeover
				return
			}
			claim.Owner = store.NewOwner()
			grant, err := records.Store.Acquire(t.Context(), key, claim)
			require.NoError(t, err)
			require.EqualValues(t, 2, grant.Attempt)
			require.NoError(t, records.Store.Abandon(t.Context(), key, claim.Owner))
		}
		assert.Equal(t, "attempt 3", outcome(t, g, submit(token, "", nil)))
	})
}

// The claim of one who came too late stands for a moment only. One who came in time, or at whose server it is earlier,
// meets with an operation that is running, as it were: it may run yet.
func TestInTimeBesideTheClaimOfAnOldToken(t *testing.T) {
	for name, duplicate := range map[string]core.Duplicate{"replay": core.Replay(), "wait": core.Wait(time.Minute)} {
		bubble(t, name, func(t *testing.T) {
			store := newStore(t)
			p := checkout(tokensFor(tokenSecret))
			p.Duplicate = duplicate
			g := core.MustNew(core.Config{User: byUser, Store: &spy{Store: store}}).MustGuard(p)
			ahead := &spy{Store: store}
			ahead.release = func(context.Context) error { time.Sleep(time.Second); return nil }
			fast := core.MustNew(core.Config{User: byUser, Store: ahead}).MustGuard(p)

			// The clock of one server is ahead of the other's: the one has a token that is not too old.
			id := [16]byte{9}
			old, fresh := forged(time.Now(), id, tokenSecret, "alice", "checkout"), forged(time.Now().Add(time.Minute), id, tokenSecret, "alice", "checkout")
			late, inTime := submit(old, "", nil), submit(fresh, "", nil)
			go serve(t, fast, late)
			synctest.Wait()
			serve(t, g, inTime)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			assert.Equal(t, "token_expired", late.code())
			if name == "wait" {
				assert.Equal(t, 201, inTime.response.Status, inTime.code())
				return
			}
			assert.Equal(t, "in_progress", inTime.code())
			assert.Equal(t, 201, serve(t, g, submit(fresh, "", nil)).response.Status)
		})
	}
}

// A token that was issued with a longer lifetime, or by a server whose clock is ahead, must not outlive the record of
// its use.
func TestATokenThatWouldOutliveItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger atomic.Int64
		e := core.MustNew(core.Config{User: byUser, Store: &spy{Store: newStore(t)}})
		lasting := func(lifetime time.Duration) *core.Guard {
			return e.MustGuard(checkout(core.MustTokens(core.TokenConfig{Secrets: [][]byte{tokenSecret}, Lifetime: lifetime})))
		}
		before, after := lasting(72*time.Hour), lasting(0)
		used, unused := tokenFor(t, before, "alice"), tokenFor(t, before, "alice")
		serve(t, before, submit(used, "", &ledger))
		assert.True(t, serve(t, after, submit(used, "", &ledger)).replayed(), "its record stands for long enough")
		assert.Equal(t, "token_expired", serve(t, after, submit(unused, "", &ledger)).code())
		time.Sleep(48 * time.Hour)
		c := serve(t, after, submit(unused, "", &ledger))
		assert.Equal(t, 201, c.response.Status, "there is not more time left than a record stands")
		time.Sleep(24*time.Hour - time.Millisecond)
		serve(t, after, submit(unused, "", &ledger))
		time.Sleep(time.Millisecond)
		serve(t, after, submit(unused, "", &ledger))
		assert.EqualValues(t, 2, ledger.Load())
	})
}

// The mark that such a claim leaves is a token's own: a task's fingerprint may read alike.
func TestAFingerprintThatReadsLikeTheMarkOfAnOldToken(t *testing.T) {
	task := core.MustNew(core.Config{Store: newStore(t)}).MustTask(core.TaskPolicy{Name: "orders"})
	call := core.Call{Key: "order 7", User: "alice", Fingerprint: "expired"}
	for i := range 2 {
		r, err := core.Do(t.Context(), task, call, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		assert.Equal(t, i > 0, r.Replayed)
	}
}
