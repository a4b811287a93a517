package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// slowServer takes a while for each connection.
type slowServer struct {
	takes    []time.Duration // the last one for all further ones
	err      error
	attempts atomic.Int32
	closed   atomic.Int32
}

func (s *slowServer) Driver() driver.Driver { return nil }

func (s *slowServer) Connect(ctx context.Context) (driver.Conn, error) {
	n := int(s.attempts.Add(1))
	select {
	case <-time.After(s.takes[min(n, len(s.takes))-1]):
		return &slowConn{server: s}, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type slowConn struct {
	driver.Conn
	server *slowServer
}

func (c *slowConn) Close() error { c.server.closed.Add(1); return nil }

// TestConnector: callers who have less time than connecting takes get a connection all the same.
func TestConnector(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server *slowServer
		use    func(t *testing.T, s *slowServer, call func() (driver.Conn, error))
		closed int32
	}{
		{"each attempt serves a later caller", &slowServer{takes: []time.Duration{2500 * time.Millisecond}},
			func(t *testing.T, s *slowServer, call func() (driver.Conn, error)) {
				for range 2 {
					_, err := call()
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
				conn, err := call()
				assert.NoError(t, err)
				assert.NotNil(t, conn)
				assert.EqualValues(t, 1, s.attempts.Load())
			}, 0},
		{"a connection that nobody waits for is kept for a while, and not for ever", &slowServer{takes: []time.Duration{2 * time.Second}},
			func(t *testing.T, s *slowServer, call func() (driver.Conn, error)) {
				for i := range int32(2) {
					_, err := call()
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					time.Sleep(spareLimit)
					_, err = call()
					assert.NoError(t, err)
					assert.Equal(t, i+1, s.attempts.Load())
				}
				_, _ = call()
				time.Sleep(spareLimit + 2*time.Second)
				assert.EqualValues(t, 1, s.closed.Load(), "those that were taken are not its own")
			}, 1},
		{"nor longer than the pool", &slowServer{takes: []time.Duration{2 * time.Second}},
			func(_ *testing.T, _ *slowServer, call func() (driver.Conn, error)) {
				_, _ = call()
				time.Sleep(2 * time.Second)
			}, 1},
		{"two callers at once have an attempt each", &slowServer{takes: []time.Duration{time.Millisecond}},
			func(t *testing.T, s *slowServer, call func() (driver.Conn, error)) {
				other := make(chan error)
				go func() { _, err := call(); other <- err }()
				_, err := call()
				assert.NoError(t, err)
				assert.NoError(t, <-other)
				assert.EqualValues(t, 2, s.attempts.Load())
			}, 0},
		{"a failure is told, and tried again by the next", &slowServer{takes: []time.Duration{1}, err: errors.New("refused")},
			func(t *testing.T, s *slowServer, call func() (driver.Conn, error)) {
				for i := range 2 {
					_, err := call()
					assert.EqualError(t, err, "refused")
					assert.EqualValues(t, i+1, s.attempts.Load())
				}
			}, 0},
		{"an attempt without an end is given up", &slowServer{takes: []time.Duration{time.Hour, 0}},
			func(t *testing.T, s *slowServer, call func() (driver.Conn, error)) {
				_, _ = call()
				time.Sleep(connectLimit)
				_, err := call()
				assert.NoError(t, err)
			}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConnector(tc.server)
				tc.use(t, tc.server, func() (driver.Conn, error) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					return c.Connect(ctx)
				})
				assert.NoError(t, c.Close())
				synctest.Wait()
				assert.Equal(t, tc.closed, tc.server.closed.Load())
			})
		})
	}
}
