package backend

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// StartValkey starts a Valkey server, as [StartRedis] does, which compares by itself (SET with IFEQ): 8.1 or later. The program is the one
// that IDEM_VALKEY_SERVER names, or valkey-server in the path. Without one the test is skipped; also where servers are required, unless
// IDEM_VALKEY_SERVER is set: scripts/backends unpacks it on Debian only.
func StartValkey(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startProgram(tb, valkeyServer(tb), "", nil, args...)
}

func valkeyServer(tb testing.TB) (program string) {
	tb.Helper()
	if unwanted() || !canStart {
		installed(tb, "valkey-server") // says why it can't be
	}
	missing := func(format string, args ...any) { tb.Helper(); tb.Skipf(format, args...) }
	named := os.Getenv("IDEM_VALKEY_SERVER")
	if named != "" {
		missing = func(format string, args ...any) { tb.Helper(); lacking(tb, format, args...) }
	}
	program, err := exec.LookPath(cmp.Or(named, "valkey-server"))
	if err != nil {
		missing("Valkey is not installed; scripts/backends unpacks it as root on Debian, or set IDEM_VALKEY_SERVER: %v", err)
	}
	out, err := exec.Command(program, "--version").Output()
	_, text, _ := strings.Cut(string(out), " v=")
	var major, minor int
	if n, _ := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil || n < 2 || major < 8 || major == 8 && minor < 1 {
		missing("%s is no Valkey 8.1 or later: %s %v", program, out, err)
	}
	return program
}

// startRedis starts a Redis server. What is in config, unlike args, the server may change
// for its next start (CONFIG REWRITE). also is as in plan.
func startRedis(tb testing.TB, config string, also []int, args ...string) *Server {
	tb.Helper()
	return startProgram(tb, installed(tb, "redis-server"), config, also, args...)
}

// startProgram starts redis-server, or one that takes the same arguments.
func startProgram(tb testing.TB, program, config string, also []int, args ...string) *Server {
	tb.Helper()
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

// ask sends one command to a Redis server, on a connection of its own, and returns the strings and numbers
// of the reply, lists in lists included. An error reply is an error.
func ask(addr string, command ...string) (reply []string, err error) {
	hello := fmt.Sprintf("*%d\r\n", len(command))
	for _, word := range command {
		hello += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	err = greet(&url.URL{Host: addr}, "", hello, func(answer *bufio.Reader) (err error) {
		reply, err = readReply(answer)
		return err
	})
	return reply, err
}

// readReply reads one reply of the protocol's second version.
func readReply(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, text := line[0], strings.TrimSpace(line[1:])
	switch n, _ := strconv.Atoi(text); {
	case kind == '-':
		return nil, errors.New(text)
	case kind == '$' && n >= 0:
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return []string{string(b[:n])}, err
	case kind == '*':
		var list []string
		for range n {
			one, err := readReply(r)
			if err != nil {
				return nil, err
			}
			list = append(list, one...)
		}
		return list, nil
	}
	return []string{text}, nil
}

// says is nil if the server's reply to command, an INFO of some kind, has all the lines.
func says(addr string, command []string, lines ...string) error {
	reply, err := ask(addr, command...)
	text := strings.Join(reply, "")
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
