package backend

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit is how long a server may take until it answers, and anything else that is
// waited for here. It is long because it only matters when something is wrong.
const startLimit = 3 * time.Minute

// Server is a server process that belongs to one test. Its methods are safe for
// concurrent use, and for goroutines other than the test's: what goes wrong is reported
// with tb.Error.
type Server struct {
	tb      testing.TB
	program string   // for messages
	argv    []string // of the process
	account *account // nil: as ourselves
	log     string   // file
	addr    string
	url     string

	mu      sync.Mutex
	ready   func() error
	process *process // nil if it does not run
}

// long skips a test of -short that takes long.
func long(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("it takes long")
	}
}

// plan is what a kind of server has to say before it can be started.
type plan struct {
	program string                     // full path
	args    func(port string) []string // for the program
	env     func(port string) []string // added to its environment; nil: nothing
	url     string                     // of the server, with %s for its address
	ready   func(addr string) error    // nil if it answers
	account *account                   // whom it runs as; nil: as ourselves
	dir     string                     // where its log goes
	also    []int                      // other ports that it takes, as distances from its own
	quit    syscall.Signal             // what ends it at the end of the test; zero: SIGKILL
	after   func()                     // clears away what it may have left behind, or nil
}

// start runs a server until the end of the test. It returns when the server answers.
func start(tb testing.TB, p plan) *Server {
	tb.Helper()
	s := &Server{
		tb:      tb,
		program: filepath.Base(p.program),
		account: p.account,
		log:     filepath.Join(p.dir, "log"),
	}
	tb.Cleanup(func() {
		s.end(cmp.Or(p.quit, syscall.SIGKILL))
		if p.after != nil {
			p.after()
		}
		if tb.Failed() {
			tb.Logf("the end of the log of %s at %s:\n%s", s.program, s.addr, s.lastWords())
		}
	})
	var err error
	for range 3 { // another process may be quicker to take the port
		port := freePort(tb, p.also...)
		s.addr = net.JoinHostPort("127.0.0.1", port)
		s.url = fmt.Sprintf(p.url, s.addr)
		s.argv = append([]string{p.program}, p.args(port)...)
		if p.env != nil {
			s.argv = slices.Concat([]string{"/usr/bin/env"}, p.env(port), s.argv)
		}
		s.ready = func() error { return p.ready(s.addr) }
		if err = s.run(); err == nil {
			return s
		}
		s.end(syscall.SIGKILL)
	}
	tb.Fatal(err)
	return nil
}

// Addr returns where the server listens, 127.0.0.1:port. It stays the same.
func (s *Server) Addr() string { return s.addr }

// URL returns the server's URL, of the same form as those of the shared servers.
func (s *Server) URL() string { return s.url }

// Pid returns the process ID, or 0 if the server does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.pid
}

// Kill ends the server and its child processes with SIGKILL, frozen or not, and returns
// when they have ended. It does nothing if the server does not run.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Start runs the server again, on the same port and with the data that it has kept. It
// returns when the server answers. It does nothing if the server runs.
func (s *Server) Start() {
	s.tb.Helper()
	if err := s.run(); err != nil {
		s.tb.Error(err)
	}
}

// Freeze stops the server and its child processes in their tracks (SIGSTOP), and returns
// when they have stopped. Connections stay open and new ones are still accepted by the
// kernel, but nothing is answered.
func (s *Server) Freeze() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		s.tb.Errorf("%s does not run: there is nothing to freeze", s.program)
		return
	}
	if err := s.process.freeze(); err != nil {
		s.tb.Error(err)
	}
}

// Thaw lets a frozen server go on (SIGCONT). It does nothing if the server is not frozen.
func (s *Server) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.thaw()
	}
}

// run starts the process, unless it runs, and waits until it answers.
func (s *Server) run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return nil
	}
	process, err := startProcess(s.argv, s.log, s.account)
	if err != nil {
		return err
	}
	s.process = process
	err = eventually(func() error {
		select {
		case <-process.ended:
			return gaveUp{fmt.Errorf("%s has ended (%v):\n%s", s.program, process.state, s.lastWords())}
		default:
			return s.ready()
		}
	})
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", s.program, err)
	}
	return nil
}

// end ends the process with a signal, by force if it takes too long.
func (s *Server) end(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return
	}
	if signal != syscall.SIGKILL {
		s.process.thaw()
		s.process.signal(signal)
		select {
		case <-s.process.ended:
		case <-time.After(5 * time.Second):
		}
	}
	if err := s.process.kill(); err != nil {
		s.tb.Error(err)
	}
	s.process = nil
}

// lastWords returns the end of the server's log.
func (s *Server) lastWords() string {
	log, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-2000):])
}

// gaveUp is an error that waiting cannot mend.
type gaveUp struct{ error }

// eventually tries until there is no error. It returns the last error if it takes longer
// than startLimit.
func eventually(try func() error) error {
	for deadline := time.Now().Add(startLimit); ; time.Sleep(5 * time.Millisecond) {
		err := try()
		if err == nil || errors.As(err, &gaveUp{}) || time.Now().After(deadline) {
			return err
		}
	}
}

// freePort returns a port of 127.0.0.1 on which nothing listens, until the end of the
// test. So are the ports at the given distances.
//
// The ports are reserved: test binaries run side by side, and a server keeps its port while it
// is down. It lies below those that Linux gives to outgoing connections (32768 and up). From
// among those, a client that tries to reach a server that is down could be given the
// server's own port, connect to itself, and keep the server from coming back.
func freePort(tb testing.TB, also ...int) string {
	tb.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(12000)
		taken := slices.ContainsFunc(append([]int{0}, also...), func(distance int) bool {
			release, ok := reserve(port + distance)
			if ok {
				tb.Cleanup(release)
			}
			return !ok || !free(port+distance)
		})
		if !taken {
			return strconv.Itoa(port)
		}
	}
	tb.Fatal("no free port between 10000 and 22000")
	return ""
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// dataDir makes a directory for a server's data, readable by its account, and removes it
// at the end of the test. (tb.TempDir lies in a directory that only we can enter.)
func dataDir(tb testing.TB, as *account) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "idem-backend-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	if as != nil {
		if err := os.Chown(dir, as.uid, as.gid); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// installed returns the full path of a program in one of the directories, or else in the
// path. If there is none, the test is skipped, or fails.
func installed(tb testing.TB, program string, dirs ...string) string {
	tb.Helper()
	if unwanted() {
		lacking(tb, "%s is not started: IDEM_BACKENDS is none", program)
	}
	if !canStart {
		lacking(tb, "own servers are started on Linux only")
	}
	for _, dir := range dirs {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		lacking(tb, "%s is not installed; scripts/backends installs it as root on Debian", program)
	}
	return path
}
