package sqlstore

import (
	"context"
	"database/sql"
	"math"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// pool is what all stores on one *sql.DB share, so that transactions which hold its connections
// leave the stores what they need to claim, renew and settle.
type pool struct {
	// room is for transactions of DoTx and RunTx: not for all connections at once.
	room room
	// writer is held by the one who writes to SQLite, which has one writer at a time. Those of
	// this process wait here for their turn, and need not ask again and again whether it has
	// come. At most one of those who wait is a transaction: the room has place for one.
	writer chan struct{}
}

var pools sync.Map // weak.Pointer[sql.DB] -> *pool

func poolOf(db *sql.DB) *pool {
	key := weak.Make(db)
	p, known := pools.LoadOrStore(key, &pool{writer: make(chan struct{}, 1)})
	if !known {
		runtime.AddCleanup(db, func(key weak.Pointer[sql.DB]) { pools.Delete(key) }, key)
	}
	return p.(*pool)
}

// enter waits until a transaction on db may begin. It waits for nothing if the caller holds a
// connection already: others may hold what it would wait for, and wait for that connection.
func (s *Store) enter(ctx context.Context, db TxBeginner) (leave func(), err error) {
	switch own := db.(type) {
	case *sql.Conn:
		return func() {}, nil
	case *sql.DB:
		if own != s.db && s.dialect != SQLite { // where it is not the pool that is short
			return func() {}, nil
		}
	}
	// Anything else is taken for the store's pool, in a wrapper.
	if err := s.pool.room.enter(ctx, s.places); err != nil {
		return nil, err
	}
	if s.dialect != SQLite {
		return func() { s.pool.room.leave(s.places) }, nil
	}
	select {
	case s.pool.writer <- struct{}{}:
	case <-ctx.Done():
		s.pool.room.leave(s.places)
		return nil, ctx.Err()
	}
	return func() {
		<-s.pool.writer
		s.pool.room.leave(s.places)
	}, nil
}

// places is how many transactions may be open at once: one less than the pool has connections. In
// a pool of one they take turns with the calls of the stores.
func (s *Store) places() int {
	if s.dialect == SQLite {
		return 1
	}
	switch most := s.db.Stats().MaxOpenConnections; most {
	case 0:
		return math.MaxInt
	default:
		return max(1, most-1)
	}
}

// room has a number of places, which may change. Those who wait for one get it in the order in
// which they came. The zero room is empty.
type room struct {
	mu      sync.Mutex
	taken   int
	waiting []chan struct{} // each is closed when its place is there
}

func (r *room) enter(ctx context.Context, places func() int) error {
	r.mu.Lock()
	if len(r.waiting) == 0 && r.taken < places() {
		r.taken++
		r.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	r.waiting = append(r.waiting, turn)
	r.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	i := slices.Index(r.waiting, turn)
	if i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
	r.mu.Unlock()
	if i < 0 { // the place came at the same moment
		r.leave(places)
	}
	return ctx.Err()
}

func (r *room) leave(places func() int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken--
	for n := places(); len(r.waiting) > 0 && r.taken < n; r.taken++ {
		close(r.waiting[0])
		r.waiting = r.waiting[1:]
	}
}
