//go:build unix

package faults_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/race"
)

// programs is a folder for programs that several tests use.
var programs string

// theService returns the service's program. It has the race detector if the test has it: what has been compiled for the test is then
// compiled for the service, too.
func theService(t *testing.T) string {
	program, err := buildOnce()
	require.NoError(t, err)
	return program
}

var buildOnce = sync.OnceValues(func() (program string, err error) {
	return buildService(programs, nil, fmt.Sprintf("-race=%t", race.Enabled))
})

// buildService builds the service and returns the program. env is added to the environment.
func buildService(dir string, env []string, args ...string) (program string, err error) {
	program = filepath.Join(dir, "service")
	cmd := exec.Command("go", append(append([]string{"build"}, args...), "-o", program, "./service")...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
}

// overlay describes a standard library whose time.Now is off by as many seconds as the
// environment variable IDEM_CLOCK_SKEW says. Only the wall clock is: spans that a process
// measures are as long as ever, as on a machine whose clock was set wrong.
func overlay(t *testing.T) (goroot, file string) {
	dir := t.TempDir()
	installed, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	// Where the go command has fetched another version of itself, that lies in the module cache, in which it replaces nothing.
	goroot = filepath.Join(dir, "go")
	require.NoError(t, os.Symlink(strings.TrimSpace(string(installed)), goroot))
	original := filepath.Join(goroot, "src", "time")
	source, err := os.ReadFile(filepath.Join(original, "time.go"))
	require.NoError(t, err)
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(string(source), now),
		"time.Now of %s is not the one that this knows how to change", runtime.Version())

	replace := map[string]string{}
	for name, text := range map[string]string{
		"time.go": strings.Replace(string(source), now, now+"\tsec += clockSkew\n", 1),
		"skew.go": `package time

import "syscall"

var clockSkew = func() int64 {
	s, ok := syscall.Getenv("IDEM_CLOCK_SKEW")
	if !ok {
		return 0
	}
	n, err := atoi(s)
	if err != nil {
		panic("IDEM_CLOCK_SKEW is no number: " + s)
	}
	return int64(n)
}()
`,
	} {
		changed := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(changed, []byte(text), 0o600))
		replace[filepath.Join(original, name)] = changed
	}
	description, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, description, 0o600))
	return goroot, file
}

// bank is what the handlers of processes call, and wait for.
func bank(t *testing.T, called func(step, operation string, attempt uint64)) (url string) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		attempt, err := strconv.ParseUint(r.FormValue("attempt"), 10, 64)
		assert.NoError(t, err)
		called(r.FormValue("step"), r.FormValue("operation"), attempt)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// process is a service in a process of its own.
type process struct {
	service
	name string // for messages, if it has one
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu     sync.Mutex
	events []event // in their order
}

// event is what a process tells of a [core.Event].
type event struct {
	at             time.Time
	Kind           core.Kind
	ID             string
	Attempt        uint64
	Takeover, Late bool
}

// startProcess starts the service and waits until it listens.
func startProcess(tr *trial, program string, skew time.Duration, args ...string) *process {
	p, err := launch(tr, program, skew, args...)
	require.NoError(tr.t, err)
	return p
}

// launch is startProcess where the store may be away, so that the service ends early.
func launch(tr *trial, program string, skew time.Duration, args ...string) (*process, error) {
	t := tr.t
	p := &process{service: service{trial: tr}, done: make(chan struct{})}
	if skew == 0 && slices.Contains(args, "-framework") { // a trace takes clocks that show the same, and calls by a guard
		args = append(slices.Clone(args), "-trace", tr.traced())
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = append(os.Environ(), "IDEM_CLOCK_SKEW="+strconv.FormatInt(int64(skew/time.Second), 10))
	// It ends with its standard input, should this process be killed.
	_, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s: %s", args[len(args)-1], stderr.String()) // not all: a URL may have a password
		}
	})
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	url, listens := strings.CutPrefix(lines.Text(), "listening on ")
	p.url = url
	go func() {
		defer close(p.done)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				e := event{at: time.Now()}
				assert.NoError(t, json.Unmarshal([]byte(text), &e), text)
				p.mu.Lock()
				p.events = append(p.events, e)
				p.mu.Unlock()
			}
		}
		_ = p.cmd.Wait()
	}()
	if !listens {
		p.kill()
		return nil, fmt.Errorf("it has ended early: %s", stderr.String())
	}
	return p, nil
}

// kill ends the process as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// freeze stops the process in its tracks, thaw has it go on.
func (p *process) freeze() { p.signal(syscall.SIGSTOP) }
func (p *process) thaw()   { p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) { require.NoError(p.t, p.cmd.Process.Signal(s)) }

// await waits until there have been n events of a kind.
func (p *process) await(kind core.Kind, n int) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		return p.count(func(e event) bool { return e.Kind == kind }) >= n
	}, patience, 10*time.Millisecond, "%v", kind)
}

// count returns how many of the events so far are such ones.
func (p *process) count(such func(event) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if such(e) {
			n++
		}
	}
	return n
}

// skew returns by how much the process's clock is off, to the minute.
func (p *process) skew() time.Duration {
	resp, err := p.client.Get(p.url + "/now")
	require.NoError(p.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	now, err := strconv.ParseInt(string(text), 10, 64)
	require.NoError(p.t, err, "%s", text)
	return time.Until(time.Unix(now, 0)).Round(time.Minute)
}
