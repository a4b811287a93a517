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

// pool is what all stores on one *sql.DB share. It keeps connections free for the stores' calls
// while transactions of DoTx and RunTx hold others.
type pool struct {
	// transactions limits how many transactions of DoTx and RunTx are open at once.
	transactions semaphore
	// writer is held while this process writes to SQLite, which has one writer at a time. Waiting
	// here is cheaper than trying again and again. At most one of those that wait is a transaction,
	// for transactions has one slot then.
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

// enter waits until a transaction on db may begin. It does not wait if the caller holds a
// connection already: those that hold the slots may be waiting for that connection.
func (s *Store) enter(ctx context.Context, db TxBeginner) (leave func(), err error) {
	switch own := db.(type) {
	case *sql.Conn:
		return func() {}, nil
	case *sql.DB:
		if own != s.db && s.dialect != SQLite { // in SQLite the writer is short, not the pool
			return func() {}, nil
		}
	}
	// Anything else is taken for the store's pool, in a wrapper.
	if err := s.pool.transactions.acquire(ctx, s.maxTransactions); err != nil {
		return nil, err
	}
	if s.dialect != SQLite {
		return func() { s.pool.transactions.release(s.maxTransactions) }, nil
	}
	select {
	case s.pool.writer <- struct{}{}:
	case <-ctx.Done():
		s.pool.transactions.release(s.maxTransactions)
		return nil, ctx.Err()
	}
	return func() {
		<-s.pool.writer
		s.pool.transactions.release(s.maxTransactions)
	}, nil
}

// maxTransactions is how many transactions may be open at once: one less than the pool has
// connections. In a pool of one they take turns with the calls of the stores.
func (s *Store) maxTransactions() int {
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

// semaphore serves waiters in order of arrival. Its limit may change between calls. The zero
// semaphore is free.
type semaphore struct {
	mu      sync.Mutex
	taken   int
	waiting []chan struct{} // each is closed when its slot is taken for it
}

func (s *semaphore) acquire(ctx context.Context, limit func() int) error {
	s.mu.Lock()
	if len(s.waiting) == 0 && s.taken < limit() {
		s.taken++
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.waiting, turn)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // the slot came at the same moment
		s.release(limit)
	}
	return ctx.Err()
}

func (s *semaphore) release(limit func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	for n := limit(); len(s.waiting) > 0 && s.taken < n; s.taken++ {
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}
