package backend

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serve runs a server of the test's own, one goroutine for each connection, and returns
// its address.
func serve(t *testing.T, handle func(net.Conn)) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	return listener.Addr().String()
}

// echo is a server that answers each line with "got " and the line. What it has got is
// its effect.
type echo struct {
	addr string

	mu   sync.Mutex
	got  []string
	ends int // connections that have ended
}

func newEcho(t *testing.T) *echo {
	e := new(echo)
	e.addr = serve(t, func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				e.mu.Lock()
				e.ends++
				e.mu.Unlock()
				return
			}
			e.mu.Lock()
			e.got = append(e.got, strings.TrimSpace(line))
			e.mu.Unlock()
			if _, err := io.WriteString(conn, "got "+line); err != nil {
				return
			}
		}
	})
	return e
}

func (e *echo) lines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.got...)
}

func (e *echo) ended() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ends
}

// caller is a client.
type caller struct {
	t    *testing.T
	conn *net.TCPConn
	r    *bufio.Reader
}

func call(t *testing.T, addr string) *caller {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(startLimit)))
	return &caller{t, conn.(*net.TCPConn), bufio.NewReader(conn)}
}

func (c *caller) send(text string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, text)
	require.NoError(c.t, err)
}

func (c *caller) hears(line string) {
	c.t.Helper()
	got, err := c.r.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, line, strings.TrimSpace(got))
}

// isCut asserts that the connection ends, and that nothing comes before its end.
func (c *caller) isCut() {
	c.t.Helper()
	got, err := c.r.ReadString('\n')
	require.Error(c.t, err)
	require.Empty(c.t, got)
	var timeout net.Error
	require.False(c.t, errors.As(err, &timeout) && timeout.Timeout(), "it is open still")
}

// hearsNothing asserts that for now nothing comes, and the connection is open.
func (c *caller) hearsNothing() {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	_, err := c.r.ReadByte()
	var timeout net.Error
	require.True(c.t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(startLimit)))
}

func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func TestProxyPasses(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	require.NotEqual(t, e.addr, p.Addr())
	first, second := call(t, p.Addr()), call(t, p.Addr())
	for _, c := range []*caller{first, second, first} {
		c.send("one\ntwo\n")
		c.hears("got one")
		c.hears("got two")
	}
	// Much more than a piece, and more than the queues hold, comes through unchanged.
	word := strings.Repeat("0123456789", 100_000)
	for range 5 {
		first.send(word + "\n")
		first.hears("got " + word)
	}
	// The end of the requests is passed on; the answers still come.
	second.send("three\n")
	require.NoError(t, second.conn.CloseWrite())
	second.hears("got three")
	second.isCut()
	require.NoError(t, eventually(func() error {
		if e.ended() != 1 {
			return io.ErrNoProgress
		}
		return nil
	}))
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := call(t, p.Addr())
	c.send("one\n")
	c.hears("got one")
	for i := range 3 {
		p.Cut()
		p.Cut() // it is cut
		c.isCut()
		_, err := net.Dial("tcp", p.Addr())
		require.ErrorContains(t, err, "refused")
		require.NoError(t, eventually(func() error { // the server's side is closed, too
			if e.ended() != i+1 {
				return io.ErrNoProgress
			}
			return nil
		}))
		p.Restore()
		p.Restore() // it is not cut
		c = call(t, p.Addr())
		c.send("two\n")
		c.hears("got two")
	}
}

func TestProxyStall(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := call(t, p.Addr())
	c.send("one\n")
	c.hears("got one")

	p.Resume() // it is not stalled
	p.Stall()
	p.Stall() // it is stalled
	c.send("two\n")
	late := call(t, p.Addr())
	late.send("late\n")
	leaver := call(t, p.Addr())
	require.NoError(t, leaver.conn.Close())
	c.hearsNothing()
	late.hearsNothing()
	require.Equal(t, []string{"one"}, e.lines())
	require.Zero(t, e.ended())
	p.Resume()
	c.hears("got two")
	late.hears("got late")

	p.Stall()
	c.send("three\n")
	p.Cut()
	c.isCut()
	p.Restore() // still stalled
	c = call(t, p.Addr())
	c.send("four\n")
	c.hearsNothing()
	p.Resume()
	c.hears("got four")
	require.NotContains(t, e.lines(), "three")
	p.Stall() // for the cleanup
	c.send("five\n")
}

func TestProxyDelay(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := call(t, p.Addr())
	const d = 20 * time.Millisecond
	p.Delay(d)
	begin := time.Now()
	for range 5 { // pieces of their own, or nearly so
		c.send("line\n")
	}
	for range 5 {
		c.hears("got line")
	}
	require.GreaterOrEqual(t, time.Since(begin), 2*d)

	// What is delayed for ever does not hold up a cut.
	p.Delay(time.Hour)
	c.send("never\n")
	c.hearsNothing()
	p.Cut()
	c.isCut()
	p.Delay(0)
	p.Restore()
	c = call(t, p.Addr())
	c.send("now\n")
	c.hears("got now")
	require.NotContains(t, e.lines(), "never")
	p.Delay(time.Hour) // for the cleanup
	c.send("never\n")
}

func TestProxyCutBefore(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c, other := call(t, p.Addr()), call(t, p.Addr())
	cut := p.CutBefore([]byte("two"))
	c.send("one\n")
	c.hears("got one")
	require.True(t, open(cut))
	c.send("a line with two words\n")
	<-cut
	c.isCut()
	other.send("two\n") // once, and only the one connection
	other.hears("got two")
	c = call(t, p.Addr())
	c.send("two\n")
	c.hears("got two")
	require.Equal(t, []string{"one", "two", "two"}, e.lines())
}

func TestProxyCutAfter(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c, other := call(t, p.Addr()), call(t, p.Addr())
	lost := p.CutAfter([]byte("two"))
	c.send("one\n")
	c.hears("got one")
	require.True(t, open(lost))
	c.send("a line with two words\n")
	<-lost
	require.Equal(t, []string{"one", "a line with two words"}, e.lines())
	c.isCut()
	other.send("two\n")
	other.hears("got two")
	c = call(t, p.Addr())
	c.send("two\n")
	c.hears("got two")
}

// What is looked for may come in several pieces.
func TestProxyLooksAcrossPieces(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*Proxy, []byte) <-chan struct{}{
		"before": (*Proxy).CutBefore,
		"after":  (*Proxy).CutAfter,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEcho(t)
			p := NewProxy(t, e.addr)
			what := strings.Repeat("0123456789abcdef", 64) + "!" // as long as can be
			done := cut(p, []byte(what))
			c := call(t, p.Addr())
			c.send(strings.Repeat("x", 3000) + "\n")
			c.hears("got " + strings.Repeat("x", 3000))
			for _, part := range []string{"start " + what[:1], what[1:500], what[500:1024]} {
				c.send(part)
				passed(t, p, part)
			}
			require.True(t, open(done))
			c.send("! end\n")
			<-done
			c.isCut()
			require.Equal(t, name == "after", len(e.lines()) == 2)
		})
	}
}

// passed returns when the proxy has passed text on as the last of the requests.
func passed(t *testing.T, p *Proxy, text string) {
	require.NoError(t, eventually(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for l := range p.links {
			if bytes.HasSuffix(l.tail, []byte(text)) {
				return nil
			}
		}
		return io.ErrNoProgress
	}))
}

// With a Redis server behind it, and many clients: each request that was lost before has
// had no effect, and each that was lost after has had one.
func TestProxyRedis(t *testing.T) {
	t.Parallel()
	s := StartRedis(t)
	p := NewProxy(t, s.Addr())
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for j := range 20 {
				key := string(rune('a'+i)) + strings.Repeat("k", j)
				cut := p.CutBefore
				if j%2 == 1 {
					cut = p.CutAfter
				}
				done := cut([]byte("$" + key + "$"))
				// In front of it is another command, whose answer may come first.
				conn, err := net.Dial("tcp", p.Addr())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.WriteString(conn, "PING\r\nINCR $"+key+"$\r\n")
				if err != nil {
					t.Error(err)
				}
				<-done
				b, _ := io.ReadAll(conn)
				_ = conn.Close()
				if strings.Contains(string(b), ":1") {
					t.Errorf("%s: the client knows: %q", key, b)
				}
				value, err := ask(s.Addr(), "GET", "$"+key+"$")
				if err != nil || (value == "1") != (j%2 == 1) {
					t.Errorf("%s of round %d: %v, %v", key, j, value, err)
				}
			}
		})
	}
	work.Wait()
}
