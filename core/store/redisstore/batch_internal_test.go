package redisstore

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
)

// sends counts the commands that are sent.
type sends struct {
	Client
	commands []int
}

func (s *sends) Do(_ context.Context, commands []Command) {
	s.commands = append(s.commands, len(commands))
	for i := range commands {
		commands[i].Text = commands[i].Args[0]
	}
}

// share sends a command of its own, and wants the reply to it.
func share(t *testing.T, b *batcher, n int) {
	commands := make([]Command, n)
	for i := range commands {
		commands[i].Args = []string{rand.Text()}
	}
	b.Do(t.Context(), commands)
	for _, do := range commands {
		assert.Equal(t, do.Args[0], do.Text)
	}
}

// batcherOf is a batcher that sends by client.
func batcherOf(client Client) *batcher { return &batcher{Client: client, calls: new(calls)} }

// The goroutine that leads a batch gets no turn, as in a process in which thousands of goroutines are ready.
func withoutLead(client Client) (b *batcher, first *flight) {
	b = batcherOf(client)
	b.open = b.empty()
	b.calls.wg.Add(1)
	b.timer = time.AfterFunc(batchAge, b.sendOld)
	first = newFlight()
	first.sent = []Command{{Args: []string{"first"}}}
	b.add(first)
	return b, first
}

func TestAFullBatchIsSentByTheCallerThatFillsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &sends{}
		b, _ := withoutLead(client)
		var joined sync.WaitGroup
		for range batchMax - 3 {
			joined.Go(func() { share(t, b, 1) })
		}
		synctest.Wait() // the timer does not go off meanwhile
		assert.Len(t, b.open.commands, batchMax-2)
		assert.Empty(t, client.commands)
		share(t, b, 2)
		joined.Wait()
		assert.Equal(t, []int{batchMax}, client.commands)
		assert.Nil(t, b.open)
	})
}

func TestAnOldBatchIsSentByATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &sends{}
		b, first := withoutLead(client)
		o := b.open
		share(t, b, 1)
		assert.Equal(t, []int{2}, client.commands)
		<-first.replies
		assert.Equal(t, "first", first.sent[0].Text)

		b.calls.wg.Add(1)
		o.leads() // its turn, at last
		assert.Equal(t, []int{2}, client.commands)

		_, first = withoutLead(client) // nobody joins
		<-first.replies
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
		joined.Go(func() { share(t, b, 1) })
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
