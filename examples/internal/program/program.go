// Package program builds and runs the example programs, for tests.
package program

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/race"
)

// Names are the examples, as `go run ./examples/...` names them.
var Names = []string{"gin", "echo", "echo5", "fiber", "fiber3", "nethttp"}

// Build builds programs whose folders are in from, and returns the folder of the executables. They have
// the race detector if the test has it.
func Build(t *testing.T, from string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"build", "-o", dir + string(filepath.Separator), fmt.Sprintf("-race=%t", race.Enabled)}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = from
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// Process is a running program.
type Process struct {
	// URL is where it listens, without a path.
	URL string
	// Metrics is the URL of its metrics, if it was asked for them.
	Metrics string

	cmd     *exec.Cmd
	stderr  bytes.Buffer
	drained chan struct{} // closed when stdout has ended
	asked   bool          // to end
	killed  bool
}

// Start starts a program on a free port and waits until it says where it listens. It ends
// with the test.
func Start(t *testing.T, executable string, args ...string) *Process {
	t.Helper()
	p := &Process{drained: make(chan struct{})}
	p.cmd = exec.Command(executable, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { p.stop(t) })

	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if at, ok := strings.CutPrefix(strings.TrimSpace(line), "metrics on "); ok {
		p.Metrics = at
		line, err = lines.ReadString('\n')
	}
	go func() {
		defer close(p.drained)
		_, _ = io.Copy(io.Discard, lines) // ends with the program
	}()
	require.NoError(t, err, "the program has ended early")
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	p.URL = url
	return p
}

// Ask asks the program to end, once: a second signal would end it at once.
func (p *Process) Ask(t *testing.T) {
	t.Helper()
	if !p.asked {
		p.asked = true
		assert.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	}
}

// Kill ends the program as a crash does.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	<-p.drained
	require.Error(t, p.cmd.Wait())
	p.killed = true
}

// stop ends the program and checks that it does so in order. A data race makes it end
// with another code than 0.
func (p *Process) stop(t *testing.T) {
	t.Helper()
	if p.killed {
		return
	}
	p.Ask(t)
	kill := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.drained
	assert.NoError(t, p.cmd.Wait())
	if t.Failed() {
		t.Logf("stderr:\n%s", p.stderr.String())
	}
}
