package backend

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestProxyCuts: with many clients, each request that was lost before has had no effect, and each that was lost after has had one. What is
// looked for may come in several pieces. (Cut, Stall and Delay are what the tests of stores rest on: without their effect these fail.)
func TestProxyCuts(t *testing.T) {
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
				for i, part := range []string{"PING\r\nINCR $" + key[:1], key[1:], "$\r\n"} {
					if _, err = io.WriteString(conn, part); err != nil {
						t.Error(err)
					}
					if j%4 < 2 && i < 2 {
						passed(t, p, part)
					}
				}
				<-done
				b, _ := io.ReadAll(conn)
				_ = conn.Close()
				if strings.Contains(string(b), ":1") {
					t.Errorf("%s: the client knows: %q", key, b)
				}
				n, err := ask(s.Addr(), "EXISTS", "$"+key+"$")
				if err != nil || (n[0] == "1") != (j%2 == 1) {
					t.Errorf("%s of round %d: %v, %v", key, j, n, err)
				}
			}
		})
	}
	work.Wait()
}

// TestProxyWhileProcessesStart: a process that is being started has a copy of each open socket until it becomes its program.
func TestProxyWhileProcessesStart(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, "127.0.0.1:1")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 20 {
			_ = exec.Command(os.Args[0], "-test.list=^$").Run()
		}
	}()
	for {
		select {
		case <-ended:
			return
		default:
			p.Cut()
			p.Restore()
		}
	}
}

// passed returns when the proxy has passed text on as the last of the requests.
func passed(t *testing.T, p *Proxy, text string) {
	assert.NoError(t, eventually(func() error {
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
