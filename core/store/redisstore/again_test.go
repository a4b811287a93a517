package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// between wraps a store's client. Each hook runs once: next in place of the next command, or of a later one if skip is set; apart
// between the two commands of the next claim; beforeLookup before the client looks into its cache.
type between struct {
	rueidis.Client
	next         func(command func() rueidis.RedisResult) rueidis.RedisResult
	skip         int
	apart        func()
	beforeLookup func()
	trips        atomic.Int32
}

func (b *between) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	b.trips.Add(1)
	command := func() rueidis.RedisResult { return b.Client.Do(ctx, cmd) }
	if next := b.turn(); next != nil {
		return next(command)
	}
	return command()
}

// DoMulti is for the two commands of a claim.
func (b *between) DoMulti(ctx context.Context, multi ...rueidis.Completed) (results []rueidis.RedisResult) {
	b.trips.Add(1)
	command := func() rueidis.RedisResult {
		if apart := b.apart; apart == nil {
			results = b.Client.DoMulti(ctx, multi...)
		} else {
			b.apart = nil
			set := b.Client.Do(ctx, multi[0])
			apart()
			results = []rueidis.RedisResult{set, b.Client.Do(ctx, multi[1])}
		}
		return results[0]
	}
	next := b.turn()
	if next == nil {
		command()
	} else if result := next(command); results == nil || result.Error() != nil && !rueidis.IsRedisNil(result.Error()) {
		return []rueidis.RedisResult{result, result}
	}
	return results
}

// turn returns what replaces the command that is about to be sent, or nil.
func (b *between) turn() (next func(func() rueidis.RedisResult) rueidis.RedisResult) {
	if b.skip > 0 {
		b.skip--
		return nil
	}
	next, b.next = b.next, nil
	return next
}

func (b *between) DoCache(ctx context.Context, cmd rueidis.Cacheable, ttl time.Duration) rueidis.RedisResult {
	if before := b.beforeLookup; before != nil {
		b.beforeLookup = nil
		before()
	}
	return b.Client.DoCache(ctx, cmd, ttl)
}

// early is a client of a server before Redis 7.0, which does not know the command for a claim, until it is upgraded.
type early struct {
	rueidis.Client
	upgraded *atomic.Bool // nil: never
}

func (e early) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	for i, command := range multi {
		if command.Commands()[0] == "SET" && (e.upgraded == nil || !e.upgraded.Load()) {
			multi[i] = e.B().Arbitrary(command.Commands()...).Args("UNKNOWN").Build()
		}
	}
	return e.Client.DoMulti(ctx, multi...)
}

// openBetween opens a store on a server that knows the scripts.
func openBetween(t *testing.T, url string, config redisstore.Config) (*redisstore.Store, *between) {
	t.Helper()
	return openOn(t, openClient(t, url), config)
}

func openOn(t *testing.T, client rueidis.Client, config redisstore.Config) (*redisstore.Store, *between) {
	t.Helper()
	b := &between{Client: client}
	s := redisstore.New(b, config)
	t.Cleanup(s.Close)
	c := begin(t, s, "warm up")
	require.NoError(t, s.Renew(t.Context(), "warm up", c.Owner, time.Hour))
	require.NoError(t, s.Complete(t.Context(), "warm up", c.Owner, nil, time.Hour))
	require.ErrorIs(t, s.Release(t.Context(), "warm up", c.Owner), store.ErrLost)
	return s, b
}

// interrupt makes the next command fail with another caller's context error, as commands do that wait for a connection that
// this caller makes. The store repeats the command after meanwhile, which runs in one of its goroutines.
func (b *between) interrupt(carriedOut bool, meanwhile func()) {
	b.next = func(command func() rueidis.RedisResult) rueidis.RedisResult {
		if carriedOut {
			command()
		}
		meanwhile()
		return rueidis.NewErrorResult(context.Canceled)
	}
}

// TestClaimTriedAgain: a claim that is sent twice finds a running record. The record is the caller's only if the first try
// has made it; else two would run.
func TestClaimTriedAgain(t *testing.T) {
	t.Run("commands", func(t *testing.T) {
		url := backend.StartRedis(t).URL()
		claimTriedAgain(t, url, openClient(t, url), 1) // what stands is found, and then taken over
	})
	t.Run("scripts", func(t *testing.T) {
		url := backend.StartRedis(t).URL()
		claimTriedAgain(t, url, early{Client: openClient(t, url)}, 0)
	})
}

// claimTriedAgain tests one client. A takeover is one command, after skip others.
func claimTriedAgain(t *testing.T, url string, client rueidis.Client, skip int) {
	s, b := openOn(t, client, redisstore.Config{})
	other := openURL(t, url, redisstore.Config{})
	ctx := t.Context()
	nothing := func() {}

	mine := newClaim()
	b.interrupt(true, nothing)
	g, err := s.Acquire(ctx, "mine", mine)
	require.NoError(t, err)
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 1}, g)
	meet(t, other, "mine", store.Running)
	require.NoError(t, s.Complete(ctx, "mine", mine.Owner, nil, time.Hour))

	// Owners that differ in one byte are two.
	mine, theirs := newClaim(), newClaim()
	theirs.Owner = mine.Owner
	theirs.Owner[len(theirs.Owner)-1]++
	acquire := func(key string, c store.Claim) func() {
		return func() {
			g, err := other.Acquire(ctx, key, c)
			assert.NoError(t, err)
			assert.Equal(t, store.Acquired, g.State)
		}
	}
	b.interrupt(false, acquire("theirs", theirs))
	g, err = s.Acquire(ctx, "theirs", mine)
	require.NoError(t, err)
	require.Equal(t, store.Running, g.State)
	require.Equal(t, fingerprint, g.Fingerprint)
	require.ErrorIs(t, s.Complete(ctx, "theirs", mine.Owner, nil, time.Hour), store.ErrLost)
	require.NoError(t, other.Complete(ctx, "theirs", theirs.Owner, nil, time.Hour))

	// The same after a takeover.
	for key, carriedOut := range map[string]bool{"taken over": true, "taken over by another": false} {
		abandoned := newClaim()
		abandoned.Lease = time.Millisecond
		_, err := s.Acquire(ctx, key, abandoned)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			g, err := s.Acquire(ctx, key, newClaim())
			return err == nil && g.State == store.Abandoned
		}, 10*time.Second, time.Millisecond)
		mine, theirs := newClaim(), newClaim()
		mine.Takeover, theirs.Takeover = true, true
		want, meanwhile := store.Acquired, nothing
		if !carriedOut {
			want, meanwhile = store.Running, acquire(key, theirs)
		}
		b.interrupt(carriedOut, meanwhile)
		b.skip = skip
		g, err := s.Acquire(ctx, key, mine)
		require.NoError(t, err)
		require.Equal(t, want, g.State, key)
		require.EqualValues(t, 2, g.Attempt)
	}

	// The same of a free record.
	c := begin(t, s, "free")
	require.NoError(t, s.Abandon(ctx, "free", c.Owner))
	c.Takeover = true
	_, err = s.Acquire(ctx, "free", c)
	require.NoError(t, err)
	require.NoError(t, s.Complete(ctx, "free", c.Owner, nil, 0))
	b.interrupt(true, nothing)
	b.skip = skip
	g, err = s.Acquire(ctx, "free", c)
	require.NoError(t, err)
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 3, Free: true}, g)
	require.NoError(t, s.Release(ctx, "free", c.Owner))

	// The same of one that has kept its operation, with all of it.
	for key, certain := range map[string]bool{"kept": true, "kept, uncertain": false} {
		want := store.Grant{State: store.Acquired, Attempt: 2, Free: certain, ID: store.NewID(), Secret: "s1", Steps: []byte("steps")}
		c := newClaim()
		c.ID, c.Secret, c.Takeover = want.ID, want.Secret, true
		_, err := s.Acquire(ctx, key, c)
		require.NoError(t, err)
		if !certain {
			require.NoError(t, s.Abandon(ctx, key, c.Owner))
			_, err := s.Acquire(ctx, key, c)
			require.NoError(t, err)
			want.Attempt++
		}
		require.NoError(t, s.Capabilities().Checkpoint(ctx, key, c.Owner, want.Steps))
		require.NoError(t, s.Capabilities().Fail(ctx, key, c.Owner, true))
		c.Owner, c.ID, c.Secret = store.NewOwner(), store.NewID(), "s2"
		b.interrupt(true, nothing)
		b.skip = skip
		g, err := s.Acquire(ctx, key, c)
		require.NoError(t, err)
		require.Equal(t, want, g, key)
	}

	// A claim whose caller has gone is released.
	short, leave := context.WithCancel(ctx)
	left := make(chan struct{})
	b.next = func(command func() rueidis.RedisResult) rueidis.RedisResult {
		result := command()
		leave()
		<-left
		return result
	}
	b.skip = skip
	_, err = s.Acquire(short, "free", c)
	require.ErrorIs(t, err, context.Canceled)
	close(left)
	require.Eventually(t, func() bool {
		g, err := other.Acquire(ctx, "free", newClaim())
		return err == nil && g.State == store.Acquired
	}, 10*time.Second, time.Millisecond)
}

// TestOwnersCallTriedAgain: a call whose second try finds no record of its owner may have taken effect at the first. The
// outcome is unknown, so the error is not ErrLost.
func TestOwnersCallTriedAgain(t *testing.T) {
	t.Run("scripts", func(t *testing.T) { ownersCallTriedAgain(t, backend.StartRedis(t).URL(), false) })
	t.Run("native", func(t *testing.T) { ownersCallTriedAgain(t, backend.StartValkey(t).URL(), true) })
}

// ownersCallTriedAgain tests one server, which compares by itself or does not.
func ownersCallTriedAgain(t *testing.T, url string, native bool) {
	s, b := openBetween(t, url, redisstore.Config{})
	if native {
		redisstore.AwaitNative(t, s)
	}
	ctx := t.Context()
	calls := map[string]func(key string, owner store.Owner) error{
		"Complete": func(key string, owner store.Owner) error {
			return s.Complete(ctx, key, owner, []byte("result"), time.Hour)
		},
		"Complete without retention": func(key string, owner store.Owner) error { return s.Complete(ctx, key, owner, nil, 0) },
		"Release":                    func(key string, owner store.Owner) error { return s.Release(ctx, key, owner) },
	}
	for name, call := range calls {
		c := begin(t, s, name)
		b.interrupt(true, func() {})
		err := call(name, c.Owner)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, store.ErrLost, name)
		require.ErrorIs(t, call(name, c.Owner), store.ErrLost, "%s, not tried again", name)

		c = begin(t, s, name+", once")
		b.interrupt(false, func() {})
		require.NoError(t, call(name+", once", c.Owner), name)
	}
	require.Equal(t, "result", string(meet(t, s, "Complete", store.Done).Result))

	// What can be done twice is known to have been done.
	c := begin(t, s, "renewed")
	b.interrupt(true, func() {})
	require.NoError(t, s.Renew(ctx, "renewed", c.Owner, 2*time.Hour))
	require.Greater(t, meet(t, s, "renewed", store.Running).Remaining, time.Hour)
}
