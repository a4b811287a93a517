package backend

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRedisKeepsNothing(t *testing.T) {
	t.Parallel()
	s := StartRedis(t)
	first := s.Pid()
	_, err := ask(s.Addr(), "SET", "key", "value")
	require.NoError(t, err)

	s.Start() // it runs
	require.Equal(t, first, s.Pid())
	s.Kill()
	require.Zero(t, s.Pid())
	s.Kill() // it does not run
	_, err = ask(s.Addr(), "GET", "key")
	require.ErrorContains(t, err, "refused")

	addr := s.Addr()
	s.Start()
	require.Equal(t, addr, s.Addr())
	require.Equal(t, "redis://"+addr, s.URL())
	require.NotEqual(t, first, s.Pid())
	got, err := ask(s.Addr(), "GET", "key")
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestRedisFreezes(t *testing.T) {
	t.Parallel()
	s := StartRedis(t)
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	defer conn.Close()
	ping := func() error {
		_, err := conn.Write([]byte("PING\r\n"))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = conn.Read(make([]byte, 7))
		return err
	}

	s.Thaw() // it is not frozen
	s.Freeze()
	require.ErrorIs(t, ping(), os.ErrDeadlineExceeded)
	s.Freeze() // it is frozen
	s.Thaw()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(startLimit)))
	got := make([]byte, 7)
	_, err = conn.Read(got)
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", string(got)) // what was sent while it was frozen

	s.Freeze()
	s.Kill()
	s.Thaw() // it does not run
	s.Start()
	require.NoError(t, redisReady(s.Addr()))
	s.Freeze() // for the cleanup
}

// A server that cannot start says why, and leaves nothing behind.
func TestStartFails(t *testing.T) {
	t.Parallel()
	StartRedis(t) // or skip
	trial := try(t, func(tb testing.TB) { StartRedis(tb, "--no-such-option", "yes") })
	require.True(t, trial.failed)
	require.Contains(t, trial.said, "redis-server has ended")
	require.Contains(t, trial.said, "no-such-option")

	trial = try(t, func(tb testing.TB) {
		s := StartRedis(tb)
		s.Kill()
		s.argv = append(s.argv, "--no-such-option", "yes")
		s.Start()
	})
	require.True(t, trial.failed)
	require.Contains(t, trial.said, "no-such-option")
	require.Contains(t, trial.said, "the end of the log")
}

// Nothing is left behind, whatever has become of the server.
func TestCleanup(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"running", "frozen", "killed"} {
		for name, start := range map[string]func(testing.TB) *Server{
			"redis":    func(tb testing.TB) *Server { return StartRedis(tb) },
			"postgres": func(tb testing.TB) *Server { return StartPostgres(tb) },
		} {
			t.Run(name+" "+end, func(t *testing.T) {
				t.Parallel()
				var s *Server
				var tree []int
				trial := try(t, func(tb testing.TB) {
					s = start(tb)
					tree = s.process.tree()
					switch end {
					case "frozen":
						s.Freeze()
					case "killed":
						s.Kill()
					}
				})
				if trial.skipped {
					t.Skip(trial.said)
				}
				require.False(t, trial.failed, trial.said)
				require.NotEmpty(t, tree)
				for _, pid := range tree {
					require.NoError(t, await(pid, 'Z', 'X'))
				}
				dir := strings.TrimSuffix(s.log, "/log")
				require.NoDirExists(t, dir)
			})
		}
	}
}
