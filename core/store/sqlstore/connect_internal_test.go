package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowServer takes a while for each connection. It is a driver, too: the server of the test that runs.
type slowServer struct {
	takes    []time.Duration // the last one for all further ones
	err      error
	attempts atomic.Int32
	closed   atomic.Int32
	restarts atomic.Bool // it has closed its connections
}

type slowDriver struct{ *slowServer }

func (d *slowDriver) Open(string) (driver.Conn, error)               { return nil, errors.ErrUnsupported }
func (d *slowDriver) OpenConnector(string) (driver.Connector, error) { return d.slowServer, nil }
func (s *slowServer) Driver() driver.Driver                          { return slowest }
func (s *slowServer) Connect(ctx context.Context) (driver.Conn, error) {
	n := int(s.attempts.Add(1))
	select {
	case <-time.After(s.takes[min(n, len(s.takes))-1]):
		return &slowConn{server: s}, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var slowest = func() *slowDriver { d := &slowDriver{}; sql.Register("slow", d); return d }()

type slowConn struct {
	driver.Conn
	server *slowServer
}

func (c *slowConn) Close() error { c.server.closed.Add(1); return nil }

func (c *slowConn) ResetSession(context.Context) error {
	if c.server.restarts.Load() {
		return driver.ErrBadConn
	}
	return nil
}

// TestConnector: callers who have less time than connecting takes get a connection all the same.
func TestConnector(t *testing.T) {
	seconds := func(s ...float64) (takes []time.Duration) {
		for _, s := range s {
			takes = append(takes, time.Duration(s*float64(time.Second)))
		}
		return takes
	}
	late := func(t *testing.T, call func(patience time.Duration) error) {
		assert.ErrorIs(t, call(time.Second), context.DeadlineExceeded)
	}
	for _, tc := range []struct {
		name     string
		server   *slowServer
		use      func(t *testing.T, s *slowServer, call func(patience time.Duration) error)
		attempts int32
		unused   int32 // connections that are closed although nobody has got them
	}{
		{"each attempt serves a later caller", &slowServer{takes: seconds(1.5)},
			func(t *testing.T, _ *slowServer, call func(time.Duration) error) {
				late(t, call)
				assert.NoError(t, call(time.Second))
			}, 1, 0},
		{"a connection that nobody waits for is kept for a while, and not for ever", &slowServer{takes: seconds(2)},
			func(t *testing.T, _ *slowServer, call func(time.Duration) error) {
				late(t, call)
				time.Sleep(spareLimit)
				assert.NoError(t, call(time.Second))
				late(t, call)
				time.Sleep(spareLimit + 2*time.Second)
			}, 2, 1},
		{"nor longer than the pool", &slowServer{takes: seconds(2)},
			func(t *testing.T, _ *slowServer, call func(time.Duration) error) {
				late(t, call)
				time.Sleep(2 * time.Second)
			}, 1, 1},
		{"nor if the server has closed it", &slowServer{takes: seconds(2, 0)},
			func(t *testing.T, s *slowServer, call func(time.Duration) error) {
				late(t, call)
				time.Sleep(2 * time.Second)
				s.restarts.Store(true)
				assert.NoError(t, call(time.Second))
			}, 2, 1},
		{"two callers at once have an attempt each", &slowServer{takes: seconds(0.5)},
			func(t *testing.T, _ *slowServer, call func(time.Duration) error) {
				other := make(chan error)
				go func() { other <- call(time.Second) }()
				assert.NoError(t, call(time.Second))
				assert.NoError(t, <-other)
			}, 2, 0},
		{"a failure is told, and tried again by the next", &slowServer{takes: seconds(0.5), err: errors.New("refused")},
			func(t *testing.T, _ *slowServer, call func(time.Duration) error) {
				assert.EqualError(t, call(time.Second), "refused")
				assert.EqualError(t, call(time.Second), "refused")
			}, 2, 0},
		{"nobody waits for an attempt that hangs", &slowServer{takes: seconds(3600, 0)},
			func(t *testing.T, _ *slowServer, call func(time.Duration) error) {
				late(t, call)
				time.Sleep(freshLimit)
				assert.NoError(t, call(time.Second))
			}, 2, 0},
		{"its end is no failure for who waits", &slowServer{takes: seconds(3600, 8, 0)},
			func(t *testing.T, _ *slowServer, call func(time.Duration) error) {
				late(t, call)
				time.Sleep(connectLimit - 2*time.Second)
				assert.NoError(t, call(9*time.Second))
			}, 3, 0},
		{"who has more time than an attempt connects by itself", &slowServer{takes: seconds(30)},
			func(t *testing.T, _ *slowServer, call func(time.Duration) error) {
				assert.NoError(t, call(time.Minute))
			}, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slowest.slowServer = tc.server
				db, err := open("slow", "")
				require.NoError(t, err)
				tc.use(t, tc.server, func(patience time.Duration) error {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					_, err := db.Conn(ctx)
					return err
				})
				assert.NoError(t, db.Close())
				time.Sleep(connectLimit)
				synctest.Wait()
				assert.Equal(t, tc.attempts, tc.server.attempts.Load(), "attempts")
				assert.Equal(t, tc.unused, tc.server.closed.Load(), "closed")
			})
		})
	}
}
