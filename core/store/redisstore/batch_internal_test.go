package redisstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
)

// sends counts the commands that are sent.
type sends struct {
	rueidis.Client
	commands []int
}

func (s *sends) DoMulti(_ context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	s.commands = append(s.commands, len(multi))
	return make([]rueidis.RedisResult, len(multi))
}

// The first caller of a batch gets no turn, as in a process in which thousands of goroutines are ready.
func withoutFirst(client rueidis.Client) *batcher {
	b := &batcher{Client: client}
	b.join(make([]rueidis.Completed, 1))
	return b
}

func TestAFullBatchIsSentByTheCallerThatFillsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &sends{}
		b := withoutFirst(client)
		var joined sync.WaitGroup
		for range batchMax - 3 {
			joined.Go(func() { assert.NoError(t, b.Do(t.Context(), rueidis.Completed{}).NonRedisError()) })
		}
		synctest.Wait() // the timer does not go off meanwhile
		assert.Len(t, b.open.commands, batchMax-2)
		assert.Empty(t, client.commands)
		b.DoMulti(t.Context(), make([]rueidis.Completed, 2)...)
		joined.Wait()
		assert.Equal(t, []int{batchMax}, client.commands)
		assert.Nil(t, b.open)
	})
}

func TestAnOldBatchIsSentByATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &sends{}
		b := withoutFirst(client)
		first := b.open
		assert.NoError(t, b.Do(t.Context(), rueidis.Completed{}).NonRedisError())
		assert.Equal(t, []int{2}, client.commands)

		sends, alone := b.end(first) // its turn, at last
		assert.False(t, sends)
		assert.False(t, alone)
		assert.Len(t, first.results, 2)

		withoutFirst(client) // nobody joins
		<-time.After(time.Second)
		synctest.Wait()
		assert.Equal(t, []int{2, 1}, client.commands)
	})
}

// WAIT holds up what is behind it on the connection: with one of its own, each caller would wait for all before.
func TestCallersWaitForReplicasTogether(t *testing.T) {
	s, err := NewURL(backend.StartRedis(t).URL(), Config{WaitForReplicas: 1})
	require.NoError(t, err)
	b, client := s.client.(*batcher), &sends{}
	s.Close()
	b.Client = client
	b.turn.Lock() // a batch is under way
	const callers = 3 * batchMax
	var joined sync.WaitGroup
	for range callers {
		joined.Go(func() { assert.NoError(t, b.Do(t.Context(), rueidis.Completed{}).NonRedisError()) })
	}
	assert.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.open != nil && len(b.open.commands) == callers
	}, 10*time.Second, time.Millisecond)
	b.turn.Unlock()
	joined.Wait()
	assert.Equal(t, []int{callers}, client.commands)
}
