package backend

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVictim is not a test by itself: TestDeathSignal runs it and kills it.
func TestVictim(t *testing.T) {
	if os.Getenv("IDEM_VICTIM") == "" {
		t.Skip("for TestDeathSignal")
	}
	s := StartPostgres(t)
	for _, pid := range append(s.process.tree(), StartRedis(t).Pid(), StartMariaDB(t).Pid()) {
		fmt.Println("pid", pid)
	}
	fmt.Println("dir", strings.TrimSuffix(s.log, "/log"))
	if os.Getenv("IDEM_VICTIM") == "frozen" {
		s.Freeze()
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // for ever
}

// Servers end when the test binary is killed.
func TestDeathSignal(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"running", "frozen"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			testDeathSignal(t, how)
		})
	}
}

func testDeathSignal(t *testing.T, how string) {
	StartPostgres(t) // or skip
	temporary, err := os.MkdirTemp("", "idem-victim-")
	require.NoError(t, err)
	defer os.RemoveAll(temporary)
	require.NoError(t, os.Chmod(temporary, 0o755))
	victim := exec.Command(os.Args[0], "-test.run=^TestVictim$")
	victim.Env = append(os.Environ(), "IDEM_VICTIM="+how, "TMPDIR="+temporary)
	_, err = victim.StdinPipe()
	require.NoError(t, err)
	out, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())

	var pids []int
	var data, said string
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		said += lines.Text() + "\n"
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, err := strconv.Atoi(text)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
		if text, ok := strings.CutPrefix(lines.Text(), "dir "); ok {
			data = text + "/data"
		}
	}
	ready := lines.Text()
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	require.Equal(t, "ready", ready, said)
	require.Greater(t, len(pids), 3)
	for _, pid := range pids {
		require.NoError(t, await(pid, 'Z', 'X'))
	}
	removeSharedMemory(data)
}

// The thread on which a test starts a server may end before the test does.
func TestThreadEnds(t *testing.T) {
	t.Parallel()
	var s *Server
	thread := make(chan struct{})
	go func() {
		defer close(thread)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		s = StartRedis(t)
	}()
	<-thread
	if s == nil {
		t.Skip("no server")
	}
	for range 20 {
		require.NoError(t, redisReady(s.Addr()))
	}
	require.NotZero(t, s.process.tree())
}
