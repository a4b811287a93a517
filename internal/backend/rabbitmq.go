package backend

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// StartRabbitMQ starts a RabbitMQ node with a name and a data directory of its own, and no plugins.
// config is added to its configuration file, line by line: "channel_max = 10". The user guest has
// the password guest.
//
// What has been confirmed survives Kill, in durable queues. Root starts it as the user rabbitmq, or
// nobody. It starts Erlang's port mapper, if none runs on the machine, which stays, as Erlang
// has it.
func StartRabbitMQ(tb testing.TB, config ...string) *Server {
	tb.Helper()
	// The program that Debian has in the path changes its user and directory, and logs elsewhere.
	program := installed(tb, "rabbitmq-server", "/usr/lib/rabbitmq/bin", "/opt/rabbitmq/sbin")
	as, err := unprivileged("rabbitmq", "nobody")
	if err != nil {
		lacking(tb, "no user for RabbitMQ: %v", err)
	}
	dir := dataDir(tb, as)
	file := filepath.Join(dir, "rabbitmq.conf")
	return start(tb, plan{
		program: program,
		args:    func(string) []string { return nil },
		env: func(port string) []string {
			lines := append([]string{"listeners.tcp.local = 127.0.0.1:" + port}, config...)
			if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
				tb.Fatal(err)
			}
			n, _ := strconv.Atoi(port) // freePort's
			return []string{
				"HOME=" + dir, // of Erlang's cookie
				"RABBITMQ_NODENAME=idem-" + port + "@localhost",
				fmt.Sprintf("RABBITMQ_DIST_PORT=%d", n+1),
				"RABBITMQ_CONF_ENV_FILE=/dev/null",
				"RABBITMQ_CONFIG_FILE=" + file,
				"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "plugins"),
				"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "data"),
				"RABBITMQ_LOG_BASE=" + dir,
				"RABBITMQ_LOGS=-",
				"RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"),
				"ERL_EPMD_ADDRESS=127.0.0.1",
				// What a quorum queue could not dead-letter, as its target was not there yet, is tried again after this
				// time: after 3 minutes by default.
				"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-rabbit dead_letter_worker_publisher_confirm_timeout 2000",
				"ERL_FLAGS=-kernel inet_dist_use_interface {127,0,0,1}",
				// The script becomes the node, in place of waiting for it: what it is sent reaches the node.
				"detached=1",
			}
		},
		url:     "amqp://guest:guest@%s/",
		ready:   func(addr string) error { return probeAMQP(&url.URL{Host: addr}) },
		account: as,
		dir:     dir,
		also:    []int{1}, // of the distribution
	})
}
