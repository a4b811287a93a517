package examples_test

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programs are the examples, as `go run ./examples/...` names them.
var programs = []string{"gin", "echo", "fiber", "nethttp"}

// build builds all programs, and signclient, and returns their folder.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, buildFlags...)
	for _, name := range append([]string{"signclient"}, programs...) {
		args = append(args, "./"+name)
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// process is a running program.
type process struct {
	url     string
	cmd     *exec.Cmd
	stderr  bytes.Buffer
	drained chan struct{} // closed when stdout has ended
	asked   bool          // to end
	killed  bool
}

// start starts a program on a free port and waits until it says where it listens.
func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{drained: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { p.stop(t) })

	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	go func() {
		defer close(p.drained)
		_, _ = io.Copy(io.Discard, lines) // ends with the program
	}()
	require.NoError(t, err, "the program has ended early")
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	p.url = url
	return p
}

// ask asks the program to end, once: a second signal would end it at once.
func (p *process) ask(t *testing.T) {
	t.Helper()
	if !p.asked {
		p.asked = true
		assert.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	}
}

// kill ends the program as a crash does.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	<-p.drained
	require.Error(t, p.cmd.Wait())
	p.killed = true
}

// stop ends the program and checks that it does so in order. A data race makes it end
// with another code than 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if p.killed {
		return
	}
	p.ask(t)
	kill := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.drained
	assert.NoError(t, p.cmd.Wait())
	if t.Failed() {
		t.Logf("stderr:\n%s", p.stderr.String())
	}
}

func wrongOptionsEndTheProgramWithCode2(t *testing.T, dir string) {
	for _, name := range programs {
		const secret = "short, and a secret"
		for _, wrong := range []struct{ flag, value, says string }{
			{"-secret", secret, "-secret: sign: secret: has 19 bytes; at least 32 are needed"},
			{"-store", "carrier-pigeon:", "-store is memory, sqlite:FILE, redis://…, postgres://… or mysql://…"},
			{"-lease", "1ns", "Policy.Lease"},
			{"-retain", "-1h", "-retain must be more than zero, not -1h"},
			{"-store=memory", "extra", `unexpected argument "extra"`},
		} {
			out, err := exec.Command(filepath.Join(dir, name), wrong.flag, wrong.value).CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s %s", name, wrong.flag)
			require.Equal(t, 2, exit.ExitCode(), name)
			require.Contains(t, string(out), wrong.says, name)
			require.NotContains(t, string(out), secret, name)
		}
	}
}
