package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startLimit is how long a service may take until it listens, and stopLimit how long until it
// has ended.
const (
	startLimit = 20 * time.Second
	stopLimit  = 10 * time.Second
)

// Service is a service process that was started by [Start], or one that runs already ([At]).
type Service struct {
	url string
	cmd *exec.Cmd // nil: it is somebody else's
	// stdin ends with this process, even if it is killed, and the service with it.
	stdin io.Closer
	ended chan struct{} // closed when the process has ended
	err   error         // how, once ended is closed
	tail  *tail
}

// At returns a service that runs already, by its URL: http://host:port.
func At(url string) (*Service, error) {
	addr, ok := strings.CutPrefix(url, "http://")
	if addr = strings.TrimSuffix(addr, "/"); !ok || addr == "" || strings.ContainsAny(addr, "/?#@") {
		return nil, fmt.Errorf("load: %q is not of the form http://host:port", url)
	}
	return &Service{url: "http://" + addr}, nil
}

// Start starts a service, a program that says "listening on URL" on a line of its standard
// output, and waits until it does. The service ends with [Service.Stop], when ctx ends, and with this process.
func Start(ctx context.Context, program string, args ...string) (*Service, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit // then it is killed
	s := &Service{cmd: cmd, ended: make(chan struct{}), tail: &tail{}}
	cmd.Stderr = s.tail
	listening := &firstLine{found: make(chan string, 1)}
	cmd.Stdout = listening
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	s.stdin = stdin
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.err = cmd.Wait()
		close(s.ended)
	}()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case line := <-listening.found:
		started := errors.New("it says " + line)
		if url, ok := strings.CutPrefix(line, "listening on "); ok {
			var at *Service
			if at, started = At(url); started == nil {
				s.url = at.url
				return s, nil
			}
		}
		err = started
	case <-s.ended:
		err = fmt.Errorf("it has ended: %w", errors.Join(s.err, context.Cause(ctx)))
	case <-limit.C:
		err = errors.New("it does not listen")
	}
	return nil, errors.Join(fmt.Errorf("load: %s: %w\n%s", program, err, s.tail), s.Stop())
}

// Addr returns where the service listens, host:port.
func (s *Service) Addr() string { return strings.TrimPrefix(s.url, "http://") }

// Stop ends the service with SIGTERM, or by force if that takes too long, and returns when
// it has ended. It returns an error if the service did not end well. A service that somebody else runs goes on.
func (s *Service) Stop() error {
	if s.cmd == nil {
		return nil
	}
	defer s.stdin.Close()
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-s.ended:
	case <-limit.C:
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	if s.err != nil {
		return fmt.Errorf("load: the service has ended: %w\n%s", s.err, s.tail)
	}
	return nil
}

// firstLine sends the first line that is written to it to found.
type firstLine struct {
	found chan string // room for one
	text  []byte
	done  bool
}

func (f *firstLine) Write(b []byte) (int, error) {
	if !f.done {
		f.text = append(f.text, b...)
		if _, line, err := bufio.ScanLines(f.text, false); err == nil && line != nil {
			f.found <- string(line)
			f.text, f.done = nil, true
		}
	}
	return len(b), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - 4000; over > 0 {
		t.text = bytes.Clone(t.text[over:])
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
