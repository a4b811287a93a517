package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
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
	c, err := d.OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(newConnector(c)), db.Close() // which has not connected
}

const (
	connectLimit = 10 * time.Second // else a link that has lost a packet keeps the pool waiting when it is whole again
	spareLimit   = time.Minute
)

// connector gives a connection that comes too late for its caller to the next one. To connect to a busy server may take longer than
// a call of the store may. If each call dropped what it had begun, none would ever be connected, although the server
// would do the work of all of them.
type connector struct {
	driver.Connector
	life context.Context // ends with the pool
	end  context.CancelFunc

	mu       sync.Mutex
	waiting  []chan connected // buffered; in order of arrival
	attempts int              // under way: at least one for each of waiting
	spare    []driver.Conn
}

func newConnector(of driver.Connector) *connector {
	c := &connector{Connector: of}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

type connected struct {
	conn driver.Conn
	err  error
}

// Connect implements [driver.Connector].
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	c.mu.Lock()
	if n := len(c.spare); n > 0 {
		conn := c.spare[n-1]
		c.spare = c.spare[:n-1]
		c.mu.Unlock()
		return conn, nil
	}
	made := make(chan connected, 1)
	c.waiting = append(c.waiting, made)
	if c.attempts < len(c.waiting) {
		c.attempts++
		go c.attempt()
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

func (c *connector) attempt() {
	ctx, cancel := context.WithTimeout(c.life, connectLimit)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts--
	switch {
	case len(c.waiting) > 0:
		c.waiting[0] <- connected{conn, err}
		c.waiting = c.waiting[1:]
	case err == nil && c.life.Err() != nil:
		_ = conn.Close()
	case err == nil:
		c.spare = append(c.spare, conn)
		time.AfterFunc(spareLimit, func() { c.drop(conn) })
	}
}

// drop closes a connection that nobody has taken.
func (c *connector) drop(conn driver.Conn) {
	c.mu.Lock()
	i := slices.Index(c.spare, conn)
	if i >= 0 {
		c.spare = slices.Delete(c.spare, i, i+1)
	}
	c.mu.Unlock()
	if i >= 0 {
		_ = conn.Close()
	}
}

// Close implements [io.Closer]: it ends with its pool.
func (c *connector) Close() error {
	c.end()
	c.mu.Lock()
	spare := slices.Clone(c.spare)
	c.mu.Unlock()
	for _, conn := range spare {
		c.drop(conn)
	}
	return nil
}
