package backend

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"
)

// StartRedis starts a Redis server. Without arguments it keeps nothing: after Kill and
// Start it is empty. args are added to those of redis-server, in the form of its command
// line: "--maxmemory", "2mb", "--maxmemory-policy", "noeviction". With "--appendonly",
// "yes", "--appendfsync", "always" it keeps what it has acknowledged.
//
// DEBUG is allowed (by default Redis 7 forbids it).
func StartRedis(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startRedis(tb, "", nil, args...)
}

// startRedis starts a Redis server. What is in config, unlike args, the server may change
// for its next start (CONFIG REWRITE). also is as in plan.
func startRedis(tb testing.TB, config string, also []int, args ...string) *Server {
	tb.Helper()
	program := installed(tb, "redis-server")
	dir := dataDir(tb, nil)
	file := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	common := []string{"--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no", "--save", "", "--appendonly", "no"}
	if guardsDebug() {
		common = append(common, "--enable-debug-command", "local")
	}
	return start(tb, plan{
		program: program,
		args: func(port string) []string {
			return append(append([]string{file, "--port", port}, common...), args...)
		},
		url:   "redis://%s",
		ready: redisReady,
		dir:   dir,
		also:  also,
	})
}

func redisReady(addr string) error {
	return probeRedis(&url.URL{Scheme: "redis", Host: addr})
}

// ask sends one command to a Redis server, on a connection of its own.
func ask(addr string, command ...string) rueidis.RedisResult {
	o := rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, AlwaysRESP2: true}
	o.Dialer.Timeout, o.ConnWriteTimeout = patience, patience
	client, err := rueidis.NewClient(o)
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	defer client.Close()
	return client.Do(context.Background(), client.B().Arbitrary(command...).Build())
}

// says is nil if the server's reply to command, an INFO of some kind, has all the lines.
func says(addr string, command []string, lines ...string) error {
	text, err := ask(addr, command...).ToString()
	for _, line := range lines {
		if err == nil && !strings.Contains("\n"+text, "\n"+line+"\r") {
			err = fmt.Errorf("%s at %s does not say %s: %q", strings.Join(command, " "), addr, line, text)
		}
	}
	return err
}

// guardsDebug tells whether redis-server knows enable-debug-command, which came with 7.0.
var guardsDebug = sync.OnceValue(func() bool {
	out, err := exec.Command("redis-server", "--version").Output()
	return err == nil && !strings.Contains(string(out), "v=6.") && !strings.Contains(string(out), "v=5.")
})
