package backend

import (
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var sharedServers = []struct {
	name, variable, url string
	get                 func(testing.TB) string
}{
	{"redis", "IDEM_REDIS_URL", "redis://127.0.0.1:6379", Redis},
	{"postgres", "IDEM_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", Postgres},
	{"mysql", "IDEM_MYSQL_URL", "mysql://root@127.0.0.1:3306/test", MySQL},
	{"amqp", "IDEM_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/", AMQP},
	{"nats", "IDEM_NATS_URL", "nats://127.0.0.1:4222", NATS},
}

func TestShared(t *testing.T) {
	for _, s := range sharedServers {
		t.Run(s.name, func(t *testing.T) {
			url := s.get(t)
			if os.Getenv(s.variable) == "" {
				require.Equal(t, s.url, url)
			}
		})
	}
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

func TestSharedBadURL(t *testing.T) {
	t.Setenv("IDEM_REDIS_URL", "redis://%")
	trial := try(t, func(tb testing.TB) { Redis(tb) })
	require.True(t, trial.failed)
	require.Contains(t, trial.said, "IDEM_REDIS_URL")
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

// What the probes make of an answer.
func TestProbes(t *testing.T) {
	mysqlOK := "\x07\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00"
	greeting := "\x02\x00\x00\x00\x0a5"
	for _, c := range []struct {
		name   string
		probe  func(*url.URL, time.Duration) error
		url    string // %s is put in
		answer string // to anything; or sent first by MySQL
		err    string // empty: the server is there
	}{
		{"redis", probeRedis, "redis://", "+PONG\r\n", ""},
		{"redis wants a password", probeRedis, "redis://", "-NOAUTH Authentication required.\r\n", ""},
		{"redis is loading", probeRedis, "redis://", "-LOADING Redis is loading the dataset in memory\r\n", "LOADING"},
		{"not redis", probeRedis, "redis://", "HTTP/1.1 400 Bad Request\r\n", "not a Redis reply"},
		{"another reply", probeRedis, "redis://", ":1\r\n", "answered"},
		{"silent", probeRedis, "redis://", "", "timeout"},
		{"redis with TLS", probeRedis, "rediss://", "", ""},

		{"postgres", probePostgres, "postgres://u@/test?sslmode=disable", "R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I", ""},
		{"postgres wants a password", probePostgres, "postgres://u@/test?sslmode=disable", "R\x00\x00\x00\x08\x00\x00\x00\x05", ""},
		{"postgres is starting", probePostgres, "postgres://u@/test?sslmode=disable", "E\x00\x00\x00\x0dSFATAL\x00\x00\x00", "FATAL"},
		{"postgres with TLS", probePostgres, "postgres://u@/test", "S", ""},
		{"postgres without TLS", probePostgres, "postgres://u@/test?sslmode=prefer", "N", ""},
		{"silent", probePostgres, "postgres://u@/test", "", "timeout"},
		{"half a message", probePostgres, "postgres://u@/test?sslmode=disable", "R\x00\x00", "timeout"},
		{"a length of nothing", probePostgres, "postgres://u@/test?sslmode=disable", "E\x00\x00\x00\x00", "it says"},

		{"mysql", probeMySQL, "mysql://u@/test", greeting + mysqlOK, ""},
		{"mysql wants something", probeMySQL, "mysql://u@/test", greeting + "\x01\x00\x00\x02\xfe", ""},
		{"mysql refuses", probeMySQL, "mysql://u@/test", greeting + "\x09\x00\x00\x02\xff\x15\x04denied", "denied"},
		{"mysql wants the password", probeMySQL, "mysql://u:p@/test", greeting + "\x09\x00\x00\x02\xff\x15\x04denied", ""},
		{"mysql is full", probeMySQL, "mysql://u@/test", "\x07\x00\x00\x00\xff\x10\x04full", "full"},
		{"an old mysql", probeMySQL, "mysql://u@/test", "\x02\x00\x00\x00\x095", "version 9"},
		{"an empty packet", probeMySQL, "mysql://u@/test", "\x00\x00\x00\x00", "empty"},
		{"silent", probeMySQL, "mysql://u@/test", "", "timeout"},

		{"amqp", probeAMQP, "amqp://", "\x01\x00\x00", ""},
		{"amqp of another version", probeAMQP, "amqp://", "AMQP\x00\x00\x09\x01", "not AMQP"},
		{"silent", probeAMQP, "amqp://", "", "timeout"},
		{"amqp with TLS", probeAMQP, "amqps://", "", ""},

		{"nats", probeNATS, "nats://", `INFO {"server_id":"N","jetstream":true} ` + "\r\n", ""},
		{"nats without JetStream", probeNATS, "nats://", `INFO {"server_id":"N"}` + "\r\n", "no JetStream"},
		{"not nats", probeNATS, "nats://", "220 mail\r\n", "not NATS"},
		{"not JSON", probeNATS, "nats://", "INFO {\r\n", "not NATS"},
		{"silent", probeNATS, "nats://", "", "timeout"},
	} {
		u, err := url.Parse(c.url)
		require.NoError(t, err)
		t.Run(u.Scheme+" "+c.name, func(t *testing.T) {
			t.Parallel()
			u.Host = serve(t, func(conn net.Conn) {
				if _, err := conn.Write([]byte(c.answer)); err == nil {
					drain(conn)
				}
			})
			limit := 50 * time.Millisecond
			if c.err != "timeout" {
				limit = patience
			}
			err = c.probe(u, limit)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}
