package backend

import (
	"cmp"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"
)

// patience is how long a shared server may take to answer. A server that is not there
// refuses at once; this is for one that is busy.
const patience = 15 * time.Second

// Redis returns the URL of the shared Redis: IDEM_REDIS_URL, or redis://127.0.0.1:6379.
// If nothing answers there, the test is skipped, or fails (see the package comment).
func Redis(tb testing.TB) string {
	tb.Helper()
	return shared(tb, "Redis", "IDEM_REDIS_URL", "redis://127.0.0.1:6379", probeRedis)
}

// Postgres returns the URL of the shared PostgreSQL: IDEM_POSTGRES_URL, or
// postgres://postgres@127.0.0.1:5432/test?sslmode=disable. If nothing answers there, the
// test is skipped, or fails.
func Postgres(tb testing.TB) string {
	tb.Helper()
	return shared(tb, "PostgreSQL", "IDEM_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", probePostgres)
}

// MySQL returns the URL of the shared MySQL or MariaDB: IDEM_MYSQL_URL, or
// mysql://root@127.0.0.1:3306/test. If nothing answers there, the test is skipped, or
// fails.
func MySQL(tb testing.TB) string {
	tb.Helper()
	return shared(tb, "MySQL or MariaDB", "IDEM_MYSQL_URL", "mysql://root@127.0.0.1:3306/test", probeMySQL)
}

// AMQP returns the URL of the shared RabbitMQ: IDEM_AMQP_URL, or
// amqp://guest:guest@127.0.0.1:5672/. If nothing answers there, the test is skipped, or
// fails.
func AMQP(tb testing.TB) string {
	tb.Helper()
	return shared(tb, "RabbitMQ", "IDEM_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/", probeAMQP)
}

// NATS returns the URL of the shared NATS: IDEM_NATS_URL, or nats://127.0.0.1:4222. If nothing
// answers there, or only a server without JetStream, the test is skipped, or fails.
func NATS(tb testing.TB) string {
	tb.Helper()
	return shared(tb, "NATS with JetStream", "IDEM_NATS_URL", "nats://127.0.0.1:4222", probeNATS)
}

// answered remembers which shared servers have answered: one question to each is enough
// for a test binary.
var answered sync.Map // URL -> struct{}

func shared(tb testing.TB, name, variable, standard string, probe func(*url.URL) error) string {
	tb.Helper()
	if unwanted() {
		lacking(tb, "%s is not asked: IDEM_BACKENDS is none", name)
	}
	raw := cmp.Or(os.Getenv(variable), standard)
	if _, ok := answered.Load(raw); ok {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		tb.Fatalf("%s is not a URL: %v", variable, err)
	}
	if err := probe(u); err != nil {
		lacking(tb, "%s does not answer at %s: %v; run scripts/backends or set %s", name, u.Redacted(), err, variable)
	}
	answered.Store(raw, struct{}{})
	return raw
}

// unwanted tells whether tests are to do without servers, be there any or not.
func unwanted() bool { return os.Getenv("IDEM_BACKENDS") == "none" }

// lacking skips the test for want of a server, or fails it where servers are required.
func lacking(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("IDEM_REQUIRE_BACKENDS") == "1" {
		tb.Fatalf(format, args...)
	}
	tb.Skipf(format, args...)
}
