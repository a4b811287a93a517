package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/rehearsal"
)

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
				trial := rehearsal.Run(t, func(tb testing.TB) {
					s = start(tb)
					tree = s.process.tree()
					switch end {
					case "frozen":
						s.Freeze()
					case "killed":
						s.Kill()
					}
				})
				if trial.Skipped() {
					t.Skip(trial.Said())
				}
				require.False(t, trial.Failed(), trial.Said())
				require.NotEmpty(t, tree)
				for _, pid := range tree {
					require.NoError(t, await(pid, 'Z', 'X'))
				}
				require.NoDirExists(t, strings.TrimSuffix(s.log, "/log"))
			})
		}
	}
}
