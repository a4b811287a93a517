package sqlstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (r *room) waits(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) == n
}

// Who comes later gets its place later, also when there are more of them meanwhile.
func TestRoomKeepsTheOrder(t *testing.T) {
	var r room
	size := 1
	places := func() int { return size }
	require.NoError(t, r.enter(t.Context(), places))
	second := make(chan error, 1)
	go func() { second <- r.enter(t.Context(), places) }()
	require.Eventually(t, func() bool { return r.waits(1) }, 10*time.Second, time.Millisecond)
	r.mu.Lock()
	size = 2
	r.mu.Unlock()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.enter(gone, places), context.Canceled)
	r.leave(places)
	require.NoError(t, <-second)
	require.Equal(t, 1, r.taken)
	require.Empty(t, r.waiting)
}

// A place that comes when somebody gives up is free for the next one.
func TestRoomTakesAPlaceBack(t *testing.T) {
	places := func() int { return 1 }
	for range 50 {
		var r room
		require.NoError(t, r.enter(t.Context(), places))
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error, 1)
		go func() { second <- r.enter(ctx, places) }()
		require.Eventually(t, func() bool { return r.waits(1) }, 10*time.Second, 10*time.Microsecond)
		r.mu.Lock()
		cancel()
		time.Sleep(100 * time.Microsecond) // it sees that, and waits for the lock
		close(r.waiting[0])                // what leave does: the place of the first one is now its own
		r.waiting = nil
		r.mu.Unlock()
		if <-second == nil {
			r.leave(places)
		}
		require.Zero(t, r.taken)
	}
}

// Who gives up waiting for the one writer of SQLite leaves its place to the next transaction.
func TestThePlaceOfWhoGivesUpIsLeft(t *testing.T) {
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
	assert.Zero(t, s.pool.room.taken)
	assert.Empty(t, s.pool.writer)
}
