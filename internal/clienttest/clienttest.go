// Package clienttest tests what implements redisstore.Client, and the store on it, on each kind of server.
package clienttest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// Connect makes a client for as long as tb runs. The URL is one that redisstore.NewURL takes; config is for rediss://. A new connection
// may take at most two seconds, and an answer three.
type Connect func(tb testing.TB, url string, config *tls.Config) redisstore.Client

// Run tests a client.
func Run(t *testing.T, connect Connect) {
	t.Run("replies", func(t *testing.T) { replies(t, connect(t, backend.Redis(t), nil)) })
	t.Run("order", func(t *testing.T) { order(t, connect(t, backend.Redis(t), nil)) })
	t.Run("lost answers", func(t *testing.T) { t.Parallel(); lostAnswers(t, connect) })
	t.Run("subscriptions", func(t *testing.T) { t.Parallel(); subscriptions(t, connect) })
	t.Run("cluster", func(t *testing.T) { t.Parallel(); cluster(t, connect) })
}

// do sends one command. Its key is in the place that key says; zero: it has none.
func do(t *testing.T, c redisstore.Client, key int, words ...string) redisstore.Reply {
	commands := []redisstore.Command{{Args: words, Key: key}}
	c.Do(t.Context(), commands)
	return commands[0].Reply
}

// name returns a key that nobody has, and removes it when t ends.
func name(t *testing.T, c redisstore.Client) string {
	key := "clienttest:" + rand.Text()
	t.Cleanup(func() { c.Do(context.Background(), []redisstore.Command{{Args: []string{"DEL", key}, Key: 1}}) })
	return key
}

// replies: each type of reply arrives as Reply has it, and an error is that of its own command.
func replies(t *testing.T, c redisstore.Client) {
	key := name(t, c)
	commands := []redisstore.Command{
		{Args: []string{"GET", key}, Key: 1},
		{Args: []string{"SET", key, "41"}, Key: 1},
		{Args: []string{"INCR", key}, Key: 1},
		{Args: []string{"GET", key}, Key: 1},
		{Args: []string{"SET", key, "x", "NONSENSE"}, Key: 1},
		{Args: []string{"EVALSHA", strings.Repeat("0", 40), "1", key}, Key: 3},
		{Args: []string{"EVAL", "return {redis.call('get', KEYS[1]), 7, false, {ARGV[1]}, redis.error_reply('MINE own')}", "1", key,
			"\x00\r\n"}, Key: 3},
		{Args: []string{"PTTL", key}, Key: 1},
	}
	c.Do(t.Context(), commands)
	is := func(i int, want redisstore.Reply) {
		t.Helper()
		assert.Equal(t, want, commands[i].Reply, "%q", commands[i].Args)
	}
	is(0, redisstore.Reply{Err: redisstore.ErrNil})
	is(1, redisstore.Reply{Text: "OK"})
	is(2, redisstore.Reply{Number: 42})
	is(3, redisstore.Reply{Text: "42"})
	for i, code := range map[int]string{4: "syntax error", 5: "NOSCRIPT "} {
		refusal, is := commands[i].Err.(redisstore.ServerError)
		assert.True(t, is && strings.HasPrefix(strings.TrimPrefix(string(refusal), "ERR "), code), "%v", commands[i].Err)
	}
	is(6, redisstore.Reply{Parts: []redisstore.Reply{{Text: "42"}, {Number: 7}, {Err: redisstore.ErrNil},
		{Parts: []redisstore.Reply{{Text: "\x00\r\n"}}}, {Err: redisstore.ServerError("MINE own")}}})
	is(7, redisstore.Reply{Number: -1})
	assert.True(t, c.OneServer())
	assert.Contains(t, do(t, c, 0, "INFO", "server").Text, "redis_version:")
}

// order: commands of one call arrive in their order, and nothing gets between SET and its PTTL that matters to replies of others.
func order(t *testing.T, c redisstore.Client) {
	var callers sync.WaitGroup
	for range 8 {
		key := name(t, c)
		callers.Go(func() {
			for round := range 50 {
				commands := []redisstore.Command{{Args: []string{"SET", key, ""}, Key: 1}}
				for i := range 10 {
					commands = append(commands, redisstore.Command{Args: []string{"APPEND", key, strconv.Itoa(i)}, Key: 1})
				}
				commands = append(commands, redisstore.Command{Args: []string{"GET", key}, Key: 1})
				c.Do(t.Context(), commands)
				if !assert.Equal(t, "0123456789", commands[11].Text, "round %d", round) {
					return
				}
			}
		})
	}
	callers.Wait()
}

// lostAnswers: a command whose answer was lost is not sent again, or its reply says that it may have been. What comes after it works.
func lostAnswers(t *testing.T, connect Connect) {
	server := backend.StartRedis(t)
	link := backend.NewProxy(t, server.Addr())
	c, direct := connect(t, link.URL(server.URL()), nil), connect(t, server.URL(), nil)
	for round := range 20 {
		counter := "counter" + strconv.Itoa(round)
		commands := []redisstore.Command{{Args: []string{"INCR", counter}, Key: 1}, {Args: []string{"PTTL", counter}, Key: 1}}
		commands = commands[:1+round%2]
		link.CutAfter([]byte(counter))
		c.Do(t.Context(), commands)
		repeated := commands[0].Repeated
		_, replied := commands[0].Err.(redisstore.ServerError)
		assert.Truef(t, commands[0].Err != nil && !replied || repeated, "%+v", commands[0].Reply)
		if times := do(t, direct, 1, "GET", counter).Text; !repeated {
			assert.Equal(t, "1", times)
		}
		require.Eventually(t, func() bool { return do(t, c, 1, "GET", counter).Err == nil }, 30*time.Second, time.Millisecond)
	}
}

// subscribe subscribes, and returns what Subscribe calls and returns. A subscription that ends before it is confirmed, for its connection
// had been cut while it was in a pool, say, is tried again.
func subscribe(t *testing.T, ctx context.Context, c redisstore.Client, channel string) (received <-chan string, ended <-chan error) {
	deadline := time.Now().Add(time.Minute)
	for {
		received, ended, err := trySubscribe(t, ctx, c, channel)
		if err == nil {
			return received, ended
		}
		require.True(t, time.Now().Before(deadline), "%v", err)
	}
}

func trySubscribe(t *testing.T, ctx context.Context, c redisstore.Client, channel string) (
	received <-chan string, ended <-chan error, err error) {
	confirmed, messages, end := make(chan struct{}), make(chan string, 100), make(chan error, 1)
	go func() {
		end <- c.Subscribe(ctx, channel, func() { close(confirmed) }, func(m string) { messages <- m })
	}()
	select {
	case <-confirmed:
	case err := <-end:
		require.Error(t, err)
		return nil, nil, err
	case <-time.After(time.Minute):
		require.FailNow(t, "not confirmed")
	}
	return messages, end, nil
}

// receive waits for what comes from a channel.
func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing comes")
	}
	return value
}

// subscriptions: none is confirmed too early, and none outlives its connection unnoticed.
func subscriptions(t *testing.T, connect Connect) {
	server := backend.StartRedis(t)
	link := backend.NewProxy(t, server.Addr())
	c, direct := connect(t, link.URL(server.URL()), nil), connect(t, server.URL(), nil)
	publish := func(channel, message string) int64 { return do(t, direct, 0, "PUBLISH", channel, message).Number }

	ctx, cancel := context.WithCancel(t.Context())
	for i := range 20 {
		channel := "channel" + strconv.Itoa(i)
		received, _ := subscribe(t, ctx, c, channel)
		require.EqualValues(t, 1, publish(channel, "first"), "it was confirmed")
		publish(channel, "second")
		require.Equal(t, "first", receive(t, received))
		require.Equal(t, "second", receive(t, received))
	}
	received, ended := subscribe(t, ctx, c, "ends")
	cancel()
	_ = receive(t, ended)
	require.Eventually(t, func() bool { return publish("ends", "x") == 0 }, time.Minute, time.Millisecond)
	assert.Empty(t, received)

	_, ended = subscribe(t, t.Context(), c, "is cut")
	link.Cut()
	link.Restore()
	assert.Error(t, receive(t, ended))
	// A client may have subscribed anew and left again, which the server has not noticed yet.
	require.Eventually(t, func() bool { return publish("is cut", "x") == 0 }, time.Minute, time.Millisecond)

	_, ended = subscribe(t, t.Context(), c, "is silent")
	link.Stall()
	assert.Error(t, receive(t, ended))
	link.Resume()
}

// cluster: each command reaches the master that has its key, also while keys move; all masters are there.
func cluster(t *testing.T, connect Connect) {
	c := connect(t, backend.StartRedisCluster(t).URL(), nil)
	assert.False(t, c.OneServer())
	nodes, err := c.Nodes(t.Context())
	require.NoError(t, err)
	keys := map[string]bool{}
	for i := range 100 {
		key := "key" + strconv.Itoa(i)
		commands := []redisstore.Command{{Args: []string{"SET", key, key, "PX", "100000"}, Key: 1}, {Args: []string{"PTTL", key}, Key: 1}}
		c.Do(t.Context(), commands)
		require.NoError(t, errors.Join(commands[0].Err, commands[1].Err))
		require.Positive(t, commands[1].Number)
		require.Equal(t, key, do(t, c, 3, "EVAL", "return redis.call('get', KEYS[1])", "1", key).Text)
		keys[key] = true
	}
	masters := 0
	for _, node := range nodes {
		if !strings.Contains(do(t, node, 0, "INFO", "replication").Text, "role:master") {
			continue
		}
		masters++
		found := do(t, node, 0, "SCAN", "0", "COUNT", "1000")
		require.Len(t, found.Parts, 2)
		for _, key := range found.Parts[1].Parts {
			delete(keys, key.Text)
		}
	}
	assert.Equal(t, 3, masters)
	assert.Empty(t, keys, "on no node")
}
