package backend

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/rehearsal"
)

// A server that is not there: skipped, or a failure where servers are required.
func TestMissing(t *testing.T) {
	t.Setenv("IDEM_BACKENDS", "")
	missing := func(want string, get func(tb testing.TB)) (said string) {
		for _, required := range []string{"", "1"} {
			t.Setenv("IDEM_REQUIRE_BACKENDS", required)
			trial := rehearsal.Run(t, func(tb testing.TB) {
				get(tb)
				t.Error("it went on")
			})
			require.Equal(t, required == "", trial.Skipped())
			require.Equal(t, required == "1", trial.Failed())
			require.Contains(t, trial.Said(), want)
			said += trial.Said()
		}
		return said
	}
	nobody := net.JoinHostPort("127.0.0.1", freePort(t))
	for variable, get := range map[string]func(testing.TB) string{
		"IDEM_REDIS_URL": Redis, "IDEM_POSTGRES_URL": Postgres, "IDEM_MYSQL_URL": MySQL, "IDEM_AMQP_URL": AMQP, "IDEM_NATS_URL": NATS,
	} {
		t.Setenv(variable, "scheme://user:secret@"+nobody+"/test?sslmode=disable")
		said := missing(variable, func(tb testing.TB) { get(tb) })
		require.Contains(t, said, nobody)
		require.Contains(t, said, "refused")
		require.NotContains(t, said, "secret")
	}
	if canStart {
		t.Setenv("PATH", t.TempDir())
		missing("redis-server is not installed", func(tb testing.TB) { StartRedis(tb) })
	}
}
