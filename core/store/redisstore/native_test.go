package redisstore_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/clienttest"
)

// scriptsOnly is a client of a server that does not compare by itself.
type scriptsOnly struct{ rueidis.Client }

func (c scriptsOnly) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	if words := command.Commands(); words[0] == "DELIFEQ" || slices.Contains(words, "IFEQ") {
		command = c.B().Arbitrary("SET").Keys(words[1]).Args("", "UNKNOWN").Build()
	}
	return c.Client.Do(ctx, command)
}

func openNative(tb testing.TB, url string) *redisstore.Store {
	s := openStore(tb, url)
	redisstore.AwaitNative(tb, s)
	return s
}

// TestValkey: the suite, on a server that compares by itself. A store that does not use that works beside one that does.
func TestValkey(t *testing.T) {
	t.Parallel()
	url := backend.StartValkey(t).URL()
	beside := func(tb testing.TB) func(tb testing.TB, url string) *redisstore.Store {
		var opened atomic.Int32
		return func(tb testing.TB, url string) *redisstore.Store {
			if opened.Add(1)%2 == 1 {
				return openNative(tb, url)
			}
			s := redisstore.New(scriptsOnly{openClient(tb, url)}, redisstore.Config{})
			tb.Cleanup(s.Close)
			return s
		}
	}
	t.Run("native", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, clienttest.Instances(t, url, openNative),
			storetest.Features{Faulty: clienttest.Faulty(backend.StartValkey, openNative)})
	})
	t.Run("beside scripts", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, clienttest.Instances(t, url, beside(t)),
			storetest.Features{Faulty: clienttest.Faulty(backend.StartValkey, beside(t))})
	})
}

// TestNativeAnswers: what the store makes of each answer to a command that compares.
func TestNativeAnswers(t *testing.T) {
	server := backend.StartValkey(t)
	client := openClient(t, server.URL())
	s, b := openOn(t, client, redisstore.Config{})
	redisstore.AwaitNative(t, s)
	ctx := t.Context()
	answers := func(script string) {
		b.next = func(func() rueidis.RedisResult) rueidis.RedisResult {
			return client.Do(ctx, client.B().Eval().Script(script).Numkeys(0).Build())
		}
	}
	complete := func(key string, owner store.Owner) error {
		return s.Complete(ctx, key, owner, []byte("result"), time.Hour)
	}

	// The script decides. A command that the server does not take is not tried again for a while.
	for _, answer := range []string{
		"return false", "return redis.error_reply('OOM command not allowed')", "return redis.error_reply('READONLY You')",
		"return redis.error_reply('MISCONF Redis')", "return redis.error_reply('NOREPLICAS Not')",
	} {
		c := begin(t, s, answer)
		answers(answer)
		b.trips.Store(0)
		require.NoError(t, complete(answer, c.Owner), answer)
		require.EqualValues(t, 2, b.trips.Load(), answer)
		require.Equal(t, "result", string(meet(t, s, answer, store.Done).Result))
	}
	for _, answer := range []string{
		"return redis.error_reply('ERR syntax error')", "return redis.error_reply('NOPERM this user')",
	} {
		redisstore.TryNative(s)
		c := begin(t, s, answer)
		answers(answer)
		b.trips.Store(0)
		require.NoError(t, complete(answer, c.Owner), answer)
		require.EqualValues(t, 2, b.trips.Load(), answer)
		c = begin(t, s, "not tried, "+answer)
		b.trips.Store(0)
		require.Equal(t, []string{"evalsha", "get", "set"}, executed(t, client, func() {
			require.NoError(t, complete("not tried, "+answer, c.Owner))
		}))
		require.EqualValues(t, 1, b.trips.Load())
	}
	redisstore.TryNative(s)
	c := begin(t, s, "later")
	require.Equal(t, []string{"set"}, executed(t, client, func() { require.NoError(t, complete("later", c.Owner)) }))

	// A command that a proxy refuses may have taken effect. The script would call it lost.
	c = begin(t, s, "refused")
	b.next = func(command func() rueidis.RedisResult) rueidis.RedisResult {
		command()
		return client.Do(ctx, client.B().Eval().Script("return redis.error_reply('ERR upstream failure')").Numkeys(0).Build())
	}
	require.ErrorContains(t, complete("refused", c.Owner), "upstream failure")
	meet(t, s, "refused", store.Done)
	require.ErrorIs(t, complete("refused", c.Owner), store.ErrLost)

	// The caller leaves before the script is needed.
	c = begin(t, s, "left")
	leaving, leave := context.WithCancel(ctx)
	b.next = func(func() rueidis.RedisResult) rueidis.RedisResult {
		leave()
		return client.Do(ctx, client.B().Eval().Script("return false").Numkeys(0).Build())
	}
	b.trips.Store(0)
	require.ErrorIs(t, s.Complete(leaving, "left", c.Owner, []byte("result"), time.Hour), context.Canceled)
	require.Eventually(t, func() bool { return b.next == nil }, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 1, b.trips.Load())
	require.NoError(t, complete("left", c.Owner))

	// An operator changes the record, or it expires, before the owner ends.
	c = begin(t, s, "changed")
	require.NoError(t, client.Do(ctx, client.B().Del().Key("changed").Build()).Error())
	theirs := begin(t, s, "changed")
	require.ErrorIs(t, complete("changed", c.Owner), store.ErrLost)
	require.ErrorIs(t, s.Release(ctx, "changed", c.Owner), store.ErrLost)
	require.NoError(t, s.Release(ctx, "changed", theirs.Owner))
	// The record expires between the command and the script, and another claim is made meanwhile.
	other := openStore(t, server.URL())
	for name, end := range map[string]func(owner store.Owner) error{
		"completed late": func(owner store.Owner) error { return complete("completed late", owner) },
		"released late":  func(owner store.Owner) error { return s.Release(ctx, "released late", owner) },
	} {
		c = begin(t, s, name)
		b.next = func(command func() rueidis.RedisResult) rueidis.RedisResult {
			require.NoError(t, client.Do(ctx, client.B().Pexpire().Key(name).Milliseconds(0).Build()).Error())
			defer begin(t, other, name)
			return command()
		}
		require.ErrorIs(t, end(c.Owner), store.ErrLost)
		meet(t, other, name, store.Running)
	}
	c = begin(t, s, "expired")
	require.NoError(t, client.Do(ctx, client.B().Pexpire().Key("expired").Milliseconds(0).Build()).Error())
	require.ErrorIs(t, complete("expired", c.Owner), store.ErrLost)
}

// executed returns what the server has executed while do ran, sorted.
func executed(t *testing.T, client rueidis.Client, do func()) (names []string) {
	t.Helper()
	for name := range during(t, client, do) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// redis84 stands in for a client of Redis 8.4, which has DELEX in place of DELIFEQ.
type redis84 struct {
	rueidis.Client
	delex atomic.Int32
}

func (c *redis84) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	switch words := command.Commands(); words[0] {
	case "DELIFEQ":
		command = c.B().Arbitrary("UNKNOWN").Build()
	case "DELEX":
		c.delex.Add(1)
		if len(words) == 4 && words[2] == "IFEQ" {
			const script = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
			command = c.B().Arbitrary("EVAL", script, "1", words[1], words[3]).Build()
		}
	}
	return c.Client.Do(ctx, command)
}

// TestDelex: Redis 8.4 has another command for a Release.
func TestDelex(t *testing.T) {
	client := &redis84{Client: openClient(t, backend.StartRedis(t).URL())}
	s, _ := openOn(t, client, redisstore.Config{})
	ctx := t.Context()
	redisstore.TryNative(s)
	c := begin(t, s, "k")
	require.NoError(t, s.Release(ctx, "k", c.Owner)) // by the script: DELIFEQ is refused
	require.Zero(t, client.delex.Load())
	for n := range int32(2) {
		c = begin(t, s, "k")
		require.NoError(t, s.Release(ctx, "k", c.Owner))
		require.Equal(t, n+1, client.delex.Load())
	}
	c = begin(t, s, "watched")
	changes := watch(t, s, "watched")
	require.NoError(t, s.Release(ctx, "watched", c.Owner))
	woken(t, changes)
	require.Equal(t, int32(3), client.delex.Load())
}
