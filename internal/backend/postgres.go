package backend

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// StartPostgres starts a PostgreSQL server with a data directory of its own. The user
// postgres needs no password; the database test is empty. args are added to those of
// postgres: "-c", "max_connections=10".
//
// What is committed survives Kill. It would not survive the machine: fsync is off, for
// what a killed process has written the kernel still has. The program is the newest of
// those that Debian installs side by side, or the one in the path. Root starts it as the
// user postgres, or nobody.
func StartPostgres(tb testing.TB, args ...string) *Server {
	tb.Helper()
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(bins, func(a, b string) int { return version(b) - version(a) })
	program := installed(tb, "postgres", bins...)
	// initdb does not follow a link to find its postgres; take the one beside it.
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	initdb := installed(tb, "initdb", filepath.Dir(program))
	as, err := unprivileged("postgres", "nobody")
	if err != nil {
		lacking(tb, "PostgreSQL does not run as root: %v", err)
	}
	dir := dataDir(tb, as)
	data := filepath.Join(dir, "data")
	if err := runToEnd([]string{
		initdb, "-D", data, "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C",
	}, "", as); err != nil {
		tb.Fatal(err)
	}
	if err := runToEnd([]string{program, "--single", "-D", data, "-F", "postgres"}, "CREATE DATABASE test\n", as); err != nil {
		tb.Fatal(err)
	}
	return start(tb, plan{
		program: program,
		args: func(port string) []string {
			return append([]string{
				"-D", data, "-p", port, "-F",
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + dir,
			}, args...)
		},
		url:     "postgres://postgres@%s/test?sslmode=disable",
		ready:   postgresReady,
		account: as,
		dir:     dir,
		quit:    syscall.SIGQUIT, // no checkpoint
		after:   func() { removeSharedMemory(data) },
	})
}

func postgresReady(addr string) error {
	return probePostgres(&url.URL{Host: addr, User: url.User("postgres"), Path: "/test"})
}

// version is the number in /usr/lib/postgresql/15/bin.
func version(bin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return n
}

// removeSharedMemory removes what a killed server has left in the kernel: a few bytes by
// which the next one would see that it is alone. There is room for 4096 of them.
func removeSharedMemory(data string) {
	pid, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return // it has ended in order
	}
	if lines := strings.Split(string(pid), "\n"); len(lines) > 6 { // "key ID"
		if key := strings.Fields(lines[6]); len(key) == 2 {
			_ = exec.Command("ipcrm", "-m", key[1]).Run()
		}
	}
}
