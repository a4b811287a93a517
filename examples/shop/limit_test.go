package shop

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
)

func TestPerUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := perUser(20, time.Minute)
		ask := func(user string) time.Duration {
			retryAfter, err := limit(t.Context(), core.User{ID: user})
			require.NoError(t, err)
			return retryAfter
		}
		ask("bob")
		time.Sleep(59 * time.Second)
		for range 20 {
			require.Zero(t, ask("alice"))
		}
		for range 3 {
			require.Equal(t, 3*time.Second, ask("alice"), "a refused call takes nothing")
		}
		require.Zero(t, ask("bob"))
		// Within the next windows nobody is forgotten who has not all of them again.
		for range 50 {
			time.Sleep(2 * time.Second)
			require.Equal(t, time.Second, ask("alice"))
			time.Sleep(time.Second)
			require.Zero(t, ask("alice"))
		}
		time.Sleep(time.Minute)
		for range 20 {
			require.Zero(t, ask("alice"))
		}
		require.Equal(t, 3*time.Second, ask("alice"))
	})
}

func TestPerUserForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := perUser(20, time.Minute)
		held := func() int {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc) >> 20
		}
		before := held()
		for i := range 64 { // of a megabyte each
			_, _ = limit(t.Context(), core.User{ID: strconv.Itoa(i) + strings.Repeat("x", 1<<20)})
		}
		require.Greater(t, held()-before, 32)
		for range 2 {
			time.Sleep(time.Minute)
			_, _ = limit(t.Context(), core.User{ID: "alice"})
		}
		require.Less(t, held()-before, 32)
		_, _ = limit(t.Context(), core.User{ID: "alice"})
	})
}

func TestPerUserOnRedis(t *testing.T) {
	server := backend.StartRedis(t)
	var limits [2]func(string) (time.Duration, error) // of two processes
	for i := range limits {
		options, err := rueidis.ParseURL(server.URL())
		require.NoError(t, err)
		client, err := rueidis.NewClient(options)
		require.NoError(t, err)
		t.Cleanup(client.Close)
		limit, err := perUserOnRedis(client, "test", 3, time.Hour)
		require.NoError(t, err)
		limits[i] = func(user string) (time.Duration, error) { return limit(t.Context(), core.User{ID: user}) }
	}
	for i := range 3 {
		retryAfter, err := limits[i%2]("alice")
		require.NoError(t, err)
		require.Zero(t, retryAfter)
	}
	for _, limit := range limits {
		retryAfter, err := limit("alice")
		require.NoError(t, err)
		require.InDelta(t, time.Hour, retryAfter, float64(10*time.Minute))
		retryAfter, err = limit("bob")
		require.NoError(t, err)
		require.Zero(t, retryAfter)
	}
	server.Kill()
	_, err := limits[0]("carol")
	require.Error(t, err)
}
