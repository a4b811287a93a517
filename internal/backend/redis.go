package backend

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
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
	return probeRedis(&url.URL{Scheme: "redis", Host: addr}, patience)
}

// guardsDebug tells whether redis-server knows enable-debug-command, which came with 7.0.
var guardsDebug = sync.OnceValue(func() bool {
	out, err := exec.Command("redis-server", "--version").Output()
	return err == nil && !strings.Contains(string(out), "v=6.") && !strings.Contains(string(out), "v=5.")
})
