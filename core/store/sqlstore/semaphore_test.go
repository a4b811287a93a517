package sqlstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *semaphore) hasWaiting(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) == n
}

// Slots are given in order of arrival, also after the limit has grown.
func TestSemaphoreKeepsTheOrder(t *testing.T) {
	var sem semaphore
	size := 1
	limit := func() int { return size }
	require.NoError(t, sem.acquire(t.Context(), limit))
	second := make(chan error, 1)
	go func() { second <- sem.acquire(t.Context(), limit) }()
	require.Eventually(t, func() bool { return sem.hasWaiting(1) }, 10*time.Second, time.Millisecond)
	sem.mu.Lock()
	size = 2
	sem.mu.Unlock()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, sem.acquire(gone, limit), context.Canceled)
	sem.release(limit)
	require.NoError(t, <-second)
	require.Equal(t, 1, sem.taken)
	require.Empty(t, sem.waiting)
}

// A slot that is given to a waiter just as its context ends is free for the next one.
func TestSemaphoreTakesASlotBack(t *testing.T) {
	limit := func() int { return 1 }
	for range 50 {
		var sem semaphore
		require.NoError(t, sem.acquire(t.Context(), limit))
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error, 1)
		go func() { second <- sem.acquire(ctx, limit) }()
		require.Eventually(t, func() bool { return sem.hasWaiting(1) }, 10*time.Second, 10*time.Microsecond)
		sem.mu.Lock()
		cancel()
		time.Sleep(100 * time.Microsecond) // it sees that, and waits for the lock
		close(sem.waiting[0])              // what release does: the waiter takes over the slot
		sem.waiting = nil
		sem.mu.Unlock()
		if <-second == nil {
			sem.release(limit)
		}
		require.Zero(t, sem.taken)
	}
}

// A caller whose context ends while it waits for SQLite's writer gives its slot back.
func TestSlotIsReleasedWhenTheWriterIsBusy(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer db.Close()
	s := &Store{db: db, dialect: SQLite, pool: poolOf(db)}
	s.pool.writer <- struct{}{} // by a statement of the store's
	gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.enter(gone, db)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	<-s.pool.writer
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	leave, err := s.enter(soon, db)
	require.NoError(t, err)
	leave()
	assert.Zero(t, s.pool.transactions.taken)
	assert.Empty(t, s.pool.writer)
}
