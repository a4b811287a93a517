package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// TestKnownRecords: a store that knows the record of its claim stores what a store does that does not, also if the record has changed.
func TestKnownRecords(t *testing.T) {
	t.Run("scripts", func(t *testing.T) { knownRecords(t, openClient(t, backend.StartRedis(t).URL()), false) })
	t.Run("native", func(t *testing.T) { knownRecords(t, openClient(t, backend.StartValkey(t).URL()), true) })
}

// knownRecords tests one server, which compares by itself or does not.
func knownRecords(t *testing.T, client rueidis.Client, native bool) {
	s, other := redisstore.New(client, redisstore.Config{}), redisstore.New(client, redisstore.Config{})
	if native {
		redisstore.AwaitNative(t, s)
	}
	t.Cleanup(s.Close)
	t.Cleanup(other.Close)
	ctx := t.Context()
	about := store.About{ID: store.NewID(), Policy: "orders", Creator: "shop-1", Remark: "v3"}
	for _, claimed := range []store.Claim{{}, {Fingerprint: fingerprint}, {Fingerprint: fingerprint, About: about},
		{About: about, Secret: "s1"}} {
		for name, complete := range map[string]func(s *redisstore.Store, key string, owner store.Owner) error{
			"complete": func(s *redisstore.Store, key string, owner store.Owner) error {
				return s.Complete(ctx, key, owner, []byte("result"), time.Hour)
			},
			"outlive": func(s *redisstore.Store, key string, owner store.Owner) error {
				return s.Capabilities().Outlive(ctx, key, owner, []byte("result"), 1500*time.Microsecond, time.Hour)
			},
		} {
			for _, changed := range []string{"", "watched", "steps"} {
				key, c := "known:"+store.NewOwner().String(), claimed
				c.Owner, c.Lease, c.Retention = store.NewOwner(), time.Hour, 2*time.Hour
				g, err := s.Acquire(ctx, key, c)
				require.NoError(t, err)
				require.Equal(t, store.Acquired, g.State)
				var changes <-chan struct{}
				switch changed {
				case "watched":
					changes = watch(t, other, key)
				case "steps":
					require.NoError(t, other.Capabilities().Checkpoint(ctx, key, c.Owner, []byte("steps")))
				}
				running, err := client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
				require.NoError(t, err)
				var records [2]string
				var left [2]int64
				for i, s := range []*redisstore.Store{s, other} {
					require.NoError(t, client.Do(ctx, client.B().Set().Key(key).Value(running).Px(time.Minute).Build()).Error())
					require.NoError(t, complete(s, key, c.Owner), "%s %s", name, changed)
					require.ErrorIs(t, complete(s, key, c.Owner), store.ErrLost, "%s %s", name, changed)
					records[i], err = client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
					require.NoError(t, err)
					left[i], err = client.Do(ctx, client.B().Pttl().Key(key).Build()).AsInt64()
					require.NoError(t, err)
				}
				require.Equal(t, records[1], records[0], "%s %s", name, changed)
				require.InDelta(t, left[1], left[0], 60_000, "%s %s", name, changed)
				require.Greater(t, left[0], int64(3_500_000))
				if changes != nil {
					woken(t, changes)
				}
			}
		}
	}
}
