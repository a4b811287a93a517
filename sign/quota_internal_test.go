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
		for n := 0; ; n++ {
			slot, err := q.take(strconv.Itoa(owner), 1000, 1060)
			if err != nil {
				require.Equal(t, CodeRateLimited, err.Code)
				require.Greater(t, err.retryAfter, int64(50))
				got = append(got, n)
				break
			}
			q.finish(strconv.Itoa(owner), slot, true)
		}
	}
	require.Equal(t, []int{2500, 1875, 1407, 1055, 791, 593, 445, 334, 250, 188, 141}, got)

	q = newQuota(0, 1, 60)
	_, err := q.take("the first", 1000, 1060)
	require.Nil(t, err)
	_, err = q.take("the second", 1000, 1060)
	require.Equal(t, CodeStoreUnavailable, err.Code, "it has taken nothing")
}

// sized is a store that says how much it holds.
type sized struct {
	*MemoryNonces
	room int
}

func (s sized) Limits() (int, bool) { return s.room, false }

// MaxNonces by default is a number for all stores, but no more than there is room for, and no less than a quota.
func TestDefaultOfMaxNonces(t *testing.T) {
	for want, c := range map[int]Config{
		1 << 19: {Nonces: sized{room: 0}},
		1 << 20: {NonceQuota: 1 << 20},
		64:      {Nonces: sized{room: 64}, NonceQuota: 64},
	} {
		c.Keys = Must(NewRing())
		require.Equal(t, want, Must(NewVerifier(c)).quota.all)
	}
}

// Owners without nonces are forgotten, and a clock that goes back or far ahead breaks nothing.
func TestQuotaForgetsOwners(t *testing.T) {
	q := newQuota(1, 100, 60)
	for i := range int64(10_000) {
		owner := strconv.FormatInt(i, 10)
		slot, err := q.take(owner, i*10, i*10+60)
		require.Nil(t, err)
		q.finish(owner, slot, true)
	}
	require.Less(t, len(q.owners), 200)

	// The clock is put back, by a day and by more than it was ever ahead.
	for day := range int64(3) {
		now := 1_000_000 - day*86_400
		for i := range int64(5) { // each when the one before is forgotten
			slot, err := q.take("demo", now+i*200, now+i*200+60)
			require.Nil(t, err)
			q.finish("demo", slot, true)
			_, err = q.take("demo", now+i*200, now+i*200+60)
			require.NotNil(t, err)
			require.LessOrEqual(t, err.retryAfter, 60+2*q.span)
		}
	}

	slot, err := q.take("late", 2_000_000, 2_000_060)
	require.Nil(t, err)
	_, err = q.take("late", 1_000_000, 1_000_060)
	require.Nil(t, err)
	q.finish("late", slot, false) // it is of a time that did not come
	require.Equal(t, 1, q.total.sum)
	require.Equal(t, 1, q.owners["late"].sum)
	_, err = q.take("late", 3_000_000, 3_000_060)
	require.Nil(t, err)
	q.finish("late", slot, false) // it has passed
	require.Equal(t, 1, q.total.sum)
	require.Equal(t, 1, q.owners["late"].sum)
}

// What is being looked up may be a replay, for which nobody has to wait for as long as for a nonce that is remembered.
func TestQuotaOfWhatIsLookedUp(t *testing.T) {
	q := newQuota(2, 100, 60)
	first, err := q.take("demo", 1000, 1060)
	require.Nil(t, err)
	q.finish("demo", first, true)
	replay, err := q.take("demo", 1000, 1060)
	require.Nil(t, err)
	_, err = q.take("demo", 1000, 1060)
	require.ErrorIs(t, err, CodeRateLimited)
	require.EqualValues(t, 1, err.retryAfter)
	q.finish("demo", replay, false)
	second, err := q.take("demo", 1000, 1060)
	require.Nil(t, err)
	q.finish("demo", second, true)
	_, err = q.take("demo", 1000, 1060)
	require.ErrorIs(t, err, CodeRateLimited)
	require.Greater(t, err.retryAfter, int64(50))
}
