package backend

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

var sharedServers = []struct {
	name, variable string
	get            func(testing.TB) string
}{
	{"redis", "IDEM_REDIS_URL", Redis},
	{"postgres", "IDEM_POSTGRES_URL", Postgres},
	{"mysql", "IDEM_MYSQL_URL", MySQL},
	{"amqp", "IDEM_AMQP_URL", AMQP},
	{"nats", "IDEM_NATS_URL", NATS},
}

// A server that is not there: skipped, or a failure where servers are required.
func TestSharedMissing(t *testing.T) {
	nobody := net.JoinHostPort("127.0.0.1", freePort(t))
	for _, s := range sharedServers {
		t.Run(s.name, func(t *testing.T) {
			at := "scheme://user:secret@" + nobody + "/test?sslmode=disable"
			t.Setenv(s.variable, at)
			for _, value := range []string{"", "0", "1"} {
				required(t, value)
				trial := try(t, func(tb testing.TB) {
					s.get(tb)
					t.Error("it went on")
				})
				require.Equal(t, value != "1", trial.skipped, "with %q", value)
				require.Equal(t, value == "1", trial.failed, "with %q", value)
				require.Contains(t, trial.said, nobody)
				require.Contains(t, trial.said, s.variable)
				require.Contains(t, trial.said, "refused")
				require.NotContains(t, trial.said, "secret")
			}
		})
	}
}

func TestOwnMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, value := range []string{"", "1"} {
		required(t, value)
		trial := try(t, func(tb testing.TB) { StartRedis(tb) })
		require.Equal(t, value != "1", trial.skipped)
		require.Equal(t, value == "1", trial.failed)
		if canStart {
			require.Contains(t, trial.said, "redis-server is not installed")
		}
	}
}
