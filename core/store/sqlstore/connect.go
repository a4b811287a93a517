package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// open is [sql.Open] for a server: its pool goes on connecting when the caller has gone.
func open(name, dsn string) (*sql.DB, error) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	d, ok := db.Driver().(driver.DriverContext)
	if !ok {
		return db, nil
	}
	of, err := d.OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	c := &connector{Connector: of}
	c.life, c.end = context.WithCancel(context.Background())
	return sql.OpenDB(c), db.Close() // which has not connected
}

const (
	connectLimit = 10 * time.Second // of an attempt; who has more time connects by itself
	freshLimit   = 2 * time.Second  // an older attempt may hang: nobody relies on it
	spareLimit   = 5 * time.Second  // longer than the pause between tries to settle a run
)

// connector gives a connection that comes too late for its caller to the next one. To connect to a busy server may take longer than
// a call of the store may. If each call dropped what it had begun, none would ever be connected, although the server
// would do the work of all of them.
type connector struct {
	driver.Connector
	life context.Context // ends with the pool
	end  context.CancelFunc

	mu      sync.Mutex
	waiting []chan connected // buffered; in order of arrival. There are at least as many attempts under way
	fresh   int              // attempts that are younger than freshLimit
	spare   []*connected
}

type connected struct {
	conn driver.Conn
	err  error
}

// Connect implements [driver.Connector].
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	for s := c.take(nil); s != nil; s = c.take(nil) {
		if r, ok := s.conn.(driver.SessionResetter); !ok || r.ResetSession(ctx) == nil { // else the server may have closed it
			return s.conn, nil
		}
		_ = s.conn.Close()
	}
	if at, ok := ctx.Deadline(); !ok || time.Until(at) > connectLimit {
		return c.Connector.Connect(ctx)
	}
	made := make(chan connected, 1)
	c.mu.Lock()
	c.waiting = append(c.waiting, made)
	if c.fresh < len(c.waiting) {
		c.fresh++
		go c.attempt(context.WithoutCancel(ctx))
	}
	c.mu.Unlock()

	select {
	case m := <-made:
		return m.conn, m.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, made)
	if i < 0 { // it came at the same moment
		m := <-made
		return m.conn, m.err
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	return nil, fmt.Errorf("connecting: %w", ctx.Err())
}

// attempt connects for whoever has waited longest when it ends. While somebody waits, its own limit is not an error: it begins again.
func (c *connector) attempt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	ages := time.AfterFunc(freshLimit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fresh--
	})
	conn, err := c.Connector.Connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ages.Stop() {
		c.fresh--
	}
	switch {
	case len(c.waiting) > 0 && errors.Is(err, context.DeadlineExceeded):
		c.fresh++
		go c.attempt(context.WithoutCancel(ctx))
	case len(c.waiting) > 0:
		c.waiting[0] <- connected{conn, err}
		c.waiting = c.waiting[1:]
	case err == nil && c.life.Err() != nil:
		go func() { _ = conn.Close() }()
	case err == nil:
		s := &connected{conn: conn}
		c.spare = append(c.spare, s)
		time.AfterFunc(spareLimit, func() {
			if c.take(s) != nil {
				_ = conn.Close()
			}
		})
	}
}

// take takes a spare connection, the latest if which is nil. It returns nil if that is not there.
func (c *connector) take(which *connected) *connected {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.spare, which)
	if which == nil {
		i = len(c.spare) - 1
	}
	if i < 0 {
		return nil
	}
	s := c.spare[i]
	c.spare = slices.Delete(c.spare, i, i+1)
	return s
}

// Close implements [io.Closer]: it ends with its pool.
func (c *connector) Close() error {
	c.end()
	for s := c.take(nil); s != nil; s = c.take(nil) {
		_ = s.conn.Close()
	}
	return nil
}
