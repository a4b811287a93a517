package fibertest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// Listen serves on a listener of its own, and returns its address. When tb ends, it waits until all connections are
// closed.
func Listen(tb testing.TB, serve func(net.Listener) error, shutdown func() error) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	counted := &countingListener{Listener: listener, asked: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- serve(counted) }()
	<-counted.asked // Shutdown does nothing to a server that has not begun
	tb.Cleanup(func() {
		// fasthttp looks for open connections each 100 ms: spare it that.
		counted.open.Wait()
		if err := shutdown(); err != nil {
			tb.Error("shutdown:", err)
		}
		<-served
	})
	return listener.Addr().String()
}

// countingListener counts the connections that the server has not closed.
type countingListener struct {
	net.Listener
	open  sync.WaitGroup
	once  sync.Once
	asked chan struct{} // closed when the server first asks for a connection
}

func (l *countingListener) Accept() (net.Conn, error) {
	l.once.Do(func() { close(l.asked) })
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{Conn: c, closed: sync.OnceFunc(l.open.Done)}, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// TimeLimit is fasthttp's timeout around h: a short one for requests that have an X-Time-Limit.
func TimeLimit(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(c *fasthttp.RequestCtx) {
		limit, err := time.ParseDuration(string(c.Request.Header.Peek("X-Time-Limit")))
		if err != nil {
			limit = time.Hour
		}
		fasthttp.TimeoutWithCodeHandler(h, limit, "too late", fasthttp.StatusServiceUnavailable)(c)
	}
}
