package amqpidem

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// acksBy are acks of an open channel, sent by send.
func acksBy(send func(tag uint64, multiple bool) error) *acks {
	a := newAcks(new(amqp.Channel))
	a.send, a.closed = send, func() bool { return false }
	return a
}

// A broker's view: nothing is acknowledged before it is settled, nothing twice, and in the end all.
func TestAcks(t *testing.T) {
	for range 50 {
		const deliveries, workers = 1000, 32
		var mu sync.Mutex
		settled := make([]bool, deliveries+1)
		outstanding := make(map[uint64]bool)
		for tag := uint64(1); tag <= deliveries; tag++ {
			outstanding[tag] = true
		}
		frames := 0
		a := acksBy(func(tag uint64, multiple bool) error {
			mu.Lock()
			defer mu.Unlock()
			frames++
			if !outstanding[tag] {
				t.Errorf("the broker does not know the tag %d", tag)
			}
			for other := range outstanding {
				if other == tag || multiple && other < tag {
					if !settled[other] {
						t.Errorf("%d was acknowledged, and is not settled", other)
					}
					delete(outstanding, other)
				}
			}
			return nil
		})
		done := make(chan struct{})
		var all, running sync.WaitGroup
		running.Go(func() { a.run(done) })
		tags := make(chan uint64)
		for range workers {
			all.Go(func() {
				for tag := range tags {
					for range rand.IntN(3) {
						runtime.Gosched()
					}
					mu.Lock()
					settled[tag] = true
					mu.Unlock()
					if err := a.Ack(tag, false); err != nil {
						t.Error(err)
					}
					if tag%100 == 0 {
						a.flush(true) // as the end of the consumer does, beside run
					}
				}
			})
		}
		for tag := uint64(1); tag <= deliveries; tag++ {
			tags <- tag
		}
		close(tags)
		all.Wait()
		close(done)
		running.Wait()
		a.flush(true)
		require.Empty(t, outstanding)
		require.Less(t, frames, deliveries)
		require.Empty(t, a.states)
	}
}

// One that takes long holds up nobody behind it.
func TestAcksBehindAGap(t *testing.T) {
	var sent []uint64
	a := acksBy(func(tag uint64, _ bool) error { sent = append(sent, tag); return nil })
	for _, tag := range []uint64{1, 2, 4, 6} {
		require.NoError(t, a.Ack(tag, false))
	}
	require.True(t, a.flush(false))
	require.Equal(t, []uint64{2}, sent)
	require.False(t, a.flush(true))
	require.Equal(t, []uint64{2, 4, 6}, sent)
	require.NoError(t, a.Ack(3, false))
	require.False(t, a.flush(true))
	require.Equal(t, []uint64{2, 4, 6, 3}, sent, "up to the last one that the broker knows")
	require.NoError(t, a.Ack(5, false))
	require.False(t, a.flush(true))
	require.Equal(t, []uint64{2, 4, 6, 3, 5}, sent)
}

// One that takes hours does not make those that are settled meanwhile dearer and dearer: what has been
// looked at is not looked at again.
func TestAcksBehindALongGap(t *testing.T) {
	frames := 0
	var together []uint64
	a := acksBy(func(tag uint64, multiple bool) error {
		frames++
		if multiple {
			together = append(together, uint64(frames), tag)
		}
		return nil
	})
	const last = 2 * maxBehind
	for tag := uint64(2); tag <= last; tag++ {
		require.NoError(t, a.Ack(tag, false))
		require.False(t, a.flush(true))
		require.Equal(t, tag+1, a.look)
	}
	require.Equal(t, last-1, frames)
	require.Empty(t, together, "it would acknowledge the first, too")
	require.LessOrEqual(t, len(a.states), maxBehind)
	require.NoError(t, a.Ack(last+1, false))
	require.NoError(t, a.Ack(1, false))
	require.False(t, a.flush(true))
	require.False(t, a.flush(true), "and sends nothing again")
	require.Equal(t, last+1, frames)
	require.Empty(t, a.states)
	require.Equal(t, []uint64{last + 1, last + 1}, together, "the last frame: 1 has gone by itself before that")
}

// What is done behind a gap waits for the pause, and no longer, whatever comes meanwhile.
func TestAcksAreSentAfterThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		a := acksBy(func(uint64, bool) error { sent.Add(1); return nil })
		done := make(chan struct{})
		go a.run(done)
		for tag := uint64(2); tag <= 21; tag++ { // 1 is not settled
			require.NoError(t, a.Ack(tag, false))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		require.GreaterOrEqual(t, sent.Load(), int64(15))
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 20, sent.Load())
		close(done)
	})
}
