package redisstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

func setMaxMemory(t *testing.T, client rueidis.Client, bytes string) {
	t.Helper()
	require.NoError(t, client.Do(t.Context(), client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", bytes).Build()).Error())
}

// TestFullServer: a server without room refuses new records and results, and nothing else.
func TestFullServer(t *testing.T) {
	t.Run("scripts", func(t *testing.T) { fullServer(t, openClient(t, backend.StartRedis(t).URL()), false) })
	t.Run("native", func(t *testing.T) { fullServer(t, openClient(t, backend.StartValkey(t).URL()), true) })
}

// fullServer tests one server, which compares by itself or does not.
func fullServer(t *testing.T, client rueidis.Client, native bool) {
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	if native {
		redisstore.AwaitNative(t, s)
	}
	ctx := t.Context()

	claims := map[string]store.Claim{}
	for _, key := range []string{"renewed", "completed", "released", "given up", "done"} {
		claims[key] = begin(t, s, key)
	}
	require.NoError(t, s.Complete(ctx, "done", claims["done"].Owner, []byte("result"), time.Hour))
	claims["expired"] = begin(t, s, "expired")
	require.NoError(t, s.Capabilities().Outlive(ctx, "expired", claims["expired"].Owner, []byte("result"), time.Millisecond, time.Hour))
	brief := newClaim()
	brief.Lease = time.Millisecond
	for _, key := range []string{"abandoned", "taken"} {
		_, err := s.Acquire(ctx, key, brief)
		require.NoError(t, err)
	}
	time.Sleep(10 * time.Millisecond)
	taker := newClaim()
	taker.Takeover = true
	g, err := s.Acquire(ctx, "taken", taker)
	require.NoError(t, err)
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 2}, g)
	_, _, err = s.Capabilities().Watch(ctx, "taken")
	require.NoError(t, err)

	for range 2 {
		// The scripts must be known, too, or they are sent whole.
		setMaxMemory(t, client, "1")
		_, err = s.Acquire(ctx, "new", newClaim())
		require.ErrorIs(t, err, store.ErrFull)
		require.NoError(t, client.Do(ctx, client.B().ScriptFlush().Build()).Error())
		_, err = s.Acquire(ctx, "new", newClaim())
		require.ErrorIs(t, err, store.ErrFull)

		err = s.Complete(ctx, "completed", claims["completed"].Owner, []byte("a result"), time.Hour)
		require.ErrorIs(t, err, store.ErrFull)
		require.ErrorIs(t, s.Complete(ctx, "completed", store.NewOwner(), []byte("a result"), time.Hour), store.ErrLost)
		meet(t, s, "completed", store.Running)
		require.NoError(t, s.Renew(ctx, "renewed", claims["renewed"].Owner, time.Hour))
		require.Equal(t, "result", string(meet(t, s, "done", store.Done).Result))
		setMaxMemory(t, client, "0")
	}
	setMaxMemory(t, client, "1")
	require.True(t, meet(t, s, "expired", store.Done).Expired)
	require.NoError(t, s.Complete(ctx, "completed", claims["completed"].Owner, nil, time.Hour))
	require.Empty(t, meet(t, s, "completed", store.Done).Result)
	require.NoError(t, s.Release(ctx, "released", claims["released"].Owner))
	require.NoError(t, s.Release(ctx, "taken", taker.Owner))
	require.NoError(t, s.Abandon(ctx, "given up", claims["given up"].Owner))
	meet(t, s, "given up", store.Abandoned)
	g, err = s.Acquire(ctx, "taken", newClaim())
	require.NoError(t, err)
	require.Equal(t, store.Abandoned, g.State)
	require.EqualValues(t, 2, g.Attempt)
	g, err = s.Acquire(ctx, "abandoned", taker)
	require.NoError(t, err)
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 2}, g)
	inspect := s.Capabilities().Inspect
	seen, err := inspect.Lookup(ctx, "given up")
	require.NoError(t, err)
	require.ErrorIs(t, inspect.Change(ctx, "given up", seen,
		store.Change{To: store.Done, Result: []byte("a result"), Retention: time.Hour}), store.ErrFull)
	require.NoError(t, inspect.Change(ctx, "given up", seen, store.Change{To: store.Free}))
	seen, err = inspect.Lookup(ctx, "done")
	require.NoError(t, err)
	require.NoError(t, inspect.Change(ctx, "done", seen, store.Change{}))

	setMaxMemory(t, client, "0")
	begin(t, s, "new") // nothing had come of it
	begin(t, s, "released")
}

// usedMemory returns what the server spends on keys, with all that belongs to them.
func usedMemory(t *testing.T, client rueidis.Client) float64 {
	t.Helper()
	info, err := client.Do(t.Context(), client.B().Info().Section("memory").Build()).ToString()
	require.NoError(t, err)
	_, rest, _ := strings.Cut(info, "\nused_memory_dataset:")
	value, _, _ := strings.Cut(rest, "\r")
	dataset, err := strconv.ParseFloat(value, 64)
	require.NoError(t, err)
	_, rest, _ = strings.Cut(info, "\nused_memory_overhead:")
	value, _, _ = strings.Cut(rest, "\r")
	overhead, err := strconv.ParseFloat(value, 64)
	require.NoError(t, err)
	return dataset + overhead
}

// TestMemoryPerRecord holds what the package comment says, with all that the server spends on
// a key, its expiry included.
func TestMemoryPerRecord(t *testing.T) {
	const n, workers = 16_000, 32
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	used := func() float64 { return usedMemory(t, client) }
	key := func(i int) string { return fmt.Sprintf("idem:U=user-%06dM=POST%%20/ordersP=%032d", i, i) }
	result := bytes.Repeat([]byte("r"), 300)
	claim := newClaim()
	each := func(do func(key string) error) {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := w; i < n; i += workers {
					if err := do(key(i)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	begin(t, s, "warm up")
	before := used()
	each(func(key string) error {
		_, err := s.Acquire(t.Context(), key, claim)
		return err
	})
	running := (used()-before)/n - float64(len(key(0)))
	each(func(key string) error { return s.Complete(t.Context(), key, claim.Owner, result, time.Hour) })
	done := (used()-before)/n - float64(len(key(0))+len(result))
	t.Logf("beyond key and result, %.0f bytes running and %.0f finished", running, done)
	require.LessOrEqual(t, running, 250.0)
	require.LessOrEqual(t, done, 250.0)
	require.Greater(t, done, float64(len(fingerprint)), "this measures nothing")
}

// TestEvictionIsReported: a server that may drop records says so in its settings, and the
// store says so once.
func TestEvictionIsReported(t *testing.T) {
	reports := make(chan error, 10)
	await := func() error {
		select {
		case err := <-reports:
			return err
		case <-time.After(10 * time.Second):
			return errors.New("nothing was reported")
		}
	}
	dropping := backend.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	s := openURL(t, dropping.URL(), redisstore.Config{Warn: func(err error) { reports <- err }})
	err := await()
	require.ErrorContains(t, err, dropping.Addr())
	require.ErrorContains(t, err, "allkeys-lru")
	begin(t, s, "k")
	s.Close()
	require.Empty(t, reports)
}

// TestEvictionIsLogged: without Warn, the report is a line in the log.
func TestEvictionIsLogged(t *testing.T) {
	server := backend.StartRedis(t, "--maxmemory-policy", "volatile-ttl")
	lines := make(lineWriter, 10)
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(lines, nil)))
	t.Cleanup(func() { slog.SetDefault(before); log.SetOutput(out); log.SetFlags(flags) })
	openURL(t, server.URL(), redisstore.Config{})
	select {
	case line := <-lines:
		require.Contains(t, line, "level=WARN")
		require.Contains(t, line, "volatile-ttl")
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was logged")
	}
}

// lineWriter sends on what is written, a line at a time.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}
