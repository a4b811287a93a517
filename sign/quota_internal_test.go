package sign

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A quota never lets more nonces live than it says, and refuses for no more than a slot longer than it has to.
func TestQuotaAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		longest := rapid.Int64Range(1, 300).Draw(rt, "longest")
		each := rapid.IntRange(0, 8).Draw(rt, "each")
		all := rapid.IntRange(each, 20).Draw(rt, "all")
		q := newQuota(each, all, longest)
		type nonce struct {
			owner string
			then  int64
		}
		var taken []nonce
		live := func(owner string, at int64) (own, sum int) {
			for _, n := range taken {
				if n.then >= at {
					sum++
					if n.owner == owner {
						own++
					}
				}
			}
			return own, sum
		}
		room := func(own, sum int) bool { return own < each || each == 0 && (own == 0 || 3*own < all-sum) }
		now := int64(1700000000)
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			now += rapid.Int64Range(0, longest/4+1).Draw(rt, "pause")
			owner := strconv.Itoa(rapid.IntRange(0, 4).Draw(rt, "owner"))
			then := now + rapid.Int64Range(0, longest).Draw(rt, "ttl")
			slot, err := q.take(owner, now, then)
			own, sum := live(owner, now)
			before, sumBefore := live(owner, now-q.span)
			switch {
			case err == nil:
				require.True(rt, room(own, sum))
				require.Less(rt, sum, all)
				if rapid.Bool().Draw(rt, "back") {
					q.finish(owner, slot, false)
					continue
				}
				q.finish(owner, slot, true)
				taken = append(taken, nonce{owner, then})
			case err.Code == CodeRateLimited:
				require.False(rt, room(before, sumBefore))
				require.LessOrEqual(rt, err.retryAfter, longest+2*q.span)
				if each == 0 {
					continue // others may take what becomes free
				}
				// It is the time to come again: there is room then.
				now += err.retryAfter
				own, _ := live(owner, now)
				require.Less(rt, own, each)
				slot, err := q.take(owner, now, now)
				if err == nil {
					q.finish(owner, slot, true)
					taken = append(taken, nonce{owner, now})
					continue
				}
				require.Equal(rt, CodeStoreUnavailable, err.Code)
			default:
				require.ErrorIs(rt, err, ErrNoncesFull)
				require.GreaterOrEqual(rt, sumBefore, all)
			}
		}
	})
}

// Without a quota, each owner gets a quarter of what those before have left. Ten leave a twentieth, and the eleventh is served.
func TestOwnersLeaveRoom(t *testing.T) {
	q := newQuota(0, 10_000, 60)
	var got []int
	for owner := range 11 {
		n := 0
		err := q.taken(strconv.Itoa(owner), 1000)
		for ; err == nil; err = q.taken(strconv.Itoa(owner), 1000) {
			n++
		}
		require.Equal(t, CodeRateLimited, err.Code)
		require.Greater(t, err.retryAfter, int64(50))
		got = append(got, n)
	}
	require.Equal(t, []int{2500, 1875, 1407, 1055, 791, 593, 445, 334, 250, 188, 141}, got)

	q = newQuota(0, 1, 60)
	require.Nil(t, q.taken("the first", 1000))
	require.Equal(t, CodeStoreUnavailable, q.taken("the second", 1000).Code, "it has taken nothing")
}

// MaxNonces by default is a number for all stores, but no more than there is room for, and no less than a quota.
func TestDefaultOfMaxNonces(t *testing.T) {
	for want, c := range map[int]Config{
		1 << 19: {},
		1 << 20: {NonceQuota: 1 << 20},
		64:      {Nonces: &MemoryNonces{Max: 64}, NonceQuota: 64},
	} {
		c.Keys = Must(NewRing())
		require.Equal(t, want, Must(NewVerifier(c)).quota.all)
	}
}

// taken takes a nonce that is kept for a minute, and ends the take. It returns nil, or the refusal.
func (q *quota) taken(owner string, now int64) *Error {
	slot, err := q.take(owner, now, now+60)
	if err == nil {
		q.finish(owner, slot, true)
	}
	return err
}

// Owners without nonces are forgotten, and a clock that goes back or far ahead breaks nothing.
func TestQuotaForgetsOwners(t *testing.T) {
	q := newQuota(1, 100, 60)
	for i := range int64(10_000) {
		require.Nil(t, q.taken(strconv.FormatInt(i, 10), i*10))
	}
	require.Less(t, len(q.owners), 200)

	// The clock is put back, by a day and by more than it was ever ahead.
	for day := range int64(3) {
		for i := range int64(5) { // each when the one before is forgotten
			now := 1_000_000 - day*86_400 + i*200
			require.Nil(t, q.taken("demo", now))
			err := q.taken("demo", now)
			require.NotNil(t, err)
			require.LessOrEqual(t, err.retryAfter, 60+2*q.span)
		}
	}

	slot, err := q.take("late", 2_000_000, 2_000_060)
	require.Nil(t, err)
	for _, now := range []int64{1_000_000, 3_000_000} { // slot is of a time that did not come, and then it has passed
		again, err := q.take("late", now, now+60)
		require.Nil(t, err)
		q.finish("late", slot, false)
		require.Equal(t, 1, q.total.sum)
		require.Equal(t, 1, q.owners["late"].sum)
		slot = again
	}
}

// What is being looked up may be a replay: nobody has to wait as long for it as for a nonce that is remembered.
func TestQuotaOfWhatIsLookedUp(t *testing.T) {
	q := newQuota(2, 100, 60)
	require.Nil(t, q.taken("demo", 1000))
	replay, err := q.take("demo", 1000, 1060)
	require.Nil(t, err)
	err = q.taken("demo", 1000)
	require.ErrorIs(t, err, CodeRateLimited)
	require.EqualValues(t, 1, err.retryAfter)
	q.finish("demo", replay, false)
	require.Nil(t, q.taken("demo", 1000))
	err = q.taken("demo", 1000)
	require.ErrorIs(t, err, CodeRateLimited)
	require.Greater(t, err.retryAfter, int64(50))
}
