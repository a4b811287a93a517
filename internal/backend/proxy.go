package backend

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP link to a server that can fail. At first it passes on all that it gets.
// Its methods are safe for concurrent use.
type Proxy struct {
	tb   testing.TB
	addr string
	work sync.WaitGroup

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while cut
	links    map[*link]struct{}
	flow     chan struct{} // closed unless stalled
	delay    time.Duration
	traps    []*trap
}

// trap is what CutBefore and CutAfter lay.
type trap struct {
	what      []byte
	after     bool
	triggered chan struct{}
}

// NewProxy returns a link to the server at target, host:port. The link and all its
// connections are closed at the end of the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{
		tb:     tb,
		addr:   net.JoinHostPort("127.0.0.1", freePort(tb)),
		target: target,
		links:  map[*link]struct{}{},
		flow:   make(chan struct{}),
	}
	close(p.flow)
	p.Restore()
	tb.Cleanup(func() {
		p.Cut()
		p.work.Wait()
	})
	return p
}

// Addr returns the address that clients use, 127.0.0.1:port.
func (p *Proxy) Addr() string { return p.addr }

// URL returns a server's URL with the proxy's address in place of the server's.
func (p *Proxy) URL(of string) string {
	p.tb.Helper()
	u, err := url.Parse(of)
	if err != nil {
		p.tb.Error(err)
		return ""
	}
	u.Host = p.addr
	return u.String()
}

// Cut closes all connections and refuses new ones, until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return
	}
	_ = p.listener.Close()
	p.listener = nil
	for l := range p.links {
		l.cut()
	}
}

// Restore accepts connections again after Cut. It leaves Stall, Delay and what waits for
// CutBefore and CutAfter as they are.
func (p *Proxy) Restore() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	var listener net.Listener
	err := eventually(func() (err error) { // a process that is being started holds a copy of what Cut has closed
		listener, err = net.Listen("tcp", p.addr)
		return err
	})
	if err != nil {
		p.tb.Error(err)
		return
	}
	p.listener = listener
	p.work.Go(func() { p.accept(listener) })
}

// Lead makes new connections lead to the server at target. Those that are there stay where they are.
func (p *Proxy) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Stall holds all bytes back in both directions, until Resume. Connections stay open, and
// new ones are accepted. Bytes that the proxy had before Stall may still be on their way.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
		p.flow = make(chan struct{})
	default:
	}
}

// Resume lets the bytes pass that Stall has held back, and all others.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
	default:
		close(p.flow)
	}
}

// Delay makes each piece of data arrive d later than it would, in both directions. What comes
// meanwhile is the next piece. It holds for what arrives at the proxy from now on; zero ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// CutBefore loses a request. The next bytes from a client that contain what are not
// passed on: their connection is closed, on both sides. It happens once; the channel
// closes when it has happened. Other connections, and new ones, are not touched.
//
// Requests are bytes to the proxy, and it sees them as they arrive: when what straddles
// two pieces, the server has got the first of them. what is at most 1025 bytes long; if it
// is empty, any bytes will do.
func (p *Proxy) CutBefore(what []byte) <-chan struct{} { return p.lay(what, false) }

// CutAfter loses an answer. The next bytes from a client that contain what are passed on,
// with those that follow, but nothing comes back: when the server has answered, the
// connection is closed for writing; when the server, having done what it was sent, has
// closed it, too, the connection to the client is closed. So the effect has happened and
// the caller does not know. It happens once, and the channel closes when it has happened.
//
// Choose bytes from the message that has the effect. With prepared statements that is not
// the one with the text of the statement, but one with its arguments. If a client sends
// more requests at once than the server has answered, an answer to an earlier one counts:
// of a later request that is still arriving at that time, the server does not get the rest.
func (p *Proxy) CutAfter(what []byte) <-chan struct{} { return p.lay(what, true) }

func (p *Proxy) lay(what []byte, after bool) <-chan struct{} {
	p.tb.Helper()
	if len(what) > tailSize+1 {
		p.tb.Errorf("the proxy looks for %d bytes at most", tailSize+1)
	}
	t := &trap{what: bytes.Clone(what), after: after, triggered: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t.triggered
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		l := &link{proxy: p, client: client.(*net.TCPConn)}
		l.ctx, l.cancel = context.WithCancel(context.Background())
		p.mu.Lock()
		if p.listener == listener {
			p.links[l] = struct{}{}
			p.work.Go(l.run)
		} else { // cut in the meantime
			l.cut()
		}
		p.mu.Unlock()
	}
}

// link is one connection through the proxy, with a goroutine for each direction.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // ends when the link is cut
	cancel context.CancelFunc

	mu     sync.Mutex
	server *net.TCPConn // nil at first

	// Guarded by proxy.mu:
	tail      []byte // the last request bytes, where the beginning of a match may be
	lost      *trap  // the CutAfter that has caught this link: the client hears no more
	forwarded bool   // what lost looked for has been passed on
	answered  bool   // the server has said something since it was caught
}

// tailSize is how much of the requests a link keeps.
const tailSize = 1024

// cut closes both connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

func (l *link) run() {
	l.proxy.mu.Lock()
	target := l.proxy.target
	l.proxy.mu.Unlock()
	server, err := new(net.Dialer).DialContext(l.ctx, "tcp", target)
	if err == nil {
		l.mu.Lock()
		l.server = server.(*net.TCPConn)
		l.mu.Unlock()
		if l.ctx.Err() != nil {
			l.cut() // now that there is a server
		}
		var work sync.WaitGroup
		work.Go(l.toServer)
		work.Go(l.toClient)
		work.Wait()
	}
	l.cut()
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	delete(l.proxy.links, l)
	if l.lost != nil {
		close(l.lost.triggered)
	}
}

// next reads a piece of what from says, and returns it when it may pass, having called look with the proxy locked.
// It returns nothing at the end, which waits its turn as data does, or if the link has been cut.
func (l *link) next(from *net.TCPConn, buffer []byte, look func(b []byte)) []byte {
	n, _ := from.Read(buffer)
	l.proxy.mu.Lock()
	delay := l.proxy.delay
	l.proxy.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-l.ctx.Done():
		}
	}
	for {
		l.proxy.mu.Lock()
		flow := l.proxy.flow
		select {
		case <-flow:
			if l.ctx.Err() != nil {
				n = 0
			}
			if n > 0 {
				look(buffer[:n])
			}
			l.proxy.mu.Unlock()
			return buffer[:n]
		default: // stalled
		}
		l.proxy.mu.Unlock()
		select {
		case <-flow:
		case <-l.ctx.Done():
			return nil
		}
	}
}

// toServer passes the requests on. When the client has no more, the server may still
// answer: the link ends when the server closes it.
func (l *link) toServer() {
	defer func() { _ = l.server.CloseWrite() }()
	buffer := make([]byte, 64<<10)
	for {
		var caught *trap
		request := l.next(l.client, buffer, func(b []byte) { caught = l.match(b) })
		if len(request) == 0 {
			return
		}
		if caught != nil && !caught.after {
			l.cut()
			close(caught.triggered)
			return
		}
		if _, err := l.server.Write(request); err != nil {
			return
		}
		if caught != nil {
			l.proxy.mu.Lock()
			l.forwarded = true
			answered := l.answered
			l.proxy.mu.Unlock()
			if answered {
				return
			}
		}
	}
}

// toClient passes the replies on, and cuts the link at their end. Once CutAfter has caught
// the link, it swallows them, and the first ends the requests: the server does what it
// has got, and closes.
func (l *link) toClient() {
	defer l.cut()
	buffer := make([]byte, 64<<10)
	for {
		var swallow, enough bool
		reply := l.next(l.server, buffer, func([]byte) {
			if l.lost != nil {
				swallow, l.answered = true, true
				enough = l.forwarded // if not, toServer ends the requests
			}
		})
		if len(reply) == 0 {
			return
		}
		if enough {
			_ = l.server.CloseWrite()
		}
		if swallow {
			continue
		}
		if _, err := l.client.Write(reply); err != nil {
			return
		}
	}
}

// match returns the first trap that request, with what came before it, springs. The trap
// is gone then.
func (l *link) match(request []byte) *trap {
	before := l.tail
	l.tail = append(before[:len(before):len(before)], request...)
	l.tail = l.tail[max(0, len(l.tail)-tailSize):]
	if l.lost != nil {
		return nil // caught already
	}
	p := l.proxy
	for i, t := range p.traps {
		// As much of the tail as a match can begin in that ends in the request.
		begin := max(0, len(before)-max(0, len(t.what)-1))
		if bytes.Contains(append(before[begin:len(before):len(before)], request...), t.what) {
			p.traps = append(p.traps[:i:i], p.traps[i+1:]...)
			if t.after {
				l.lost = t
			}
			return t
		}
	}
	return nil
}
