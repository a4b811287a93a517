package backend

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// StartPgBouncer starts a PgBouncer in front of the PostgreSQL server of a URL, which has connections for
// one transaction each (pool_mode=transaction), at most size of them. It keeps no
// client's prepared statements apart, as versions before 1.21. settings are added to its configuration:
// "max_client_conn=10". Root starts it as the user postgres, or nobody.
func StartPgBouncer(tb testing.TB, of string, size int, settings ...string) *Server {
	tb.Helper()
	program := installed(tb, "pgbouncer", "/usr/sbin")
	as, err := unprivileged("postgres", "nobody")
	if err != nil {
		lacking(tb, "PgBouncer does not run as root: %v", err)
	}
	u, err := url.Parse(of)
	if err != nil {
		tb.Fatalf("not a URL: %v", err)
	}
	to := fmt.Sprintf("host=%s port=%s dbname=%s user=%s", u.Hostname(), cmp.Or(u.Port(), "5432"),
		strings.TrimPrefix(u.Path, "/"), u.User.Username())
	if password, set := u.User.Password(); set {
		to += " password='" + strings.ReplaceAll(password, "'", "''") + "'"
	}
	var major, minor int
	unprepared := ""
	out, _ := exec.Command(program, "--version").Output()
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err == nil && (major > 1 || minor >= 21) {
		unprepared = "max_prepared_statements=0"
	}
	dir := dataDir(tb, as)
	file := filepath.Join(dir, "pgbouncer.ini")
	return start(tb, plan{
		program: program,
		args: func(port string) []string {
			text := fmt.Sprintf("[databases]\ntest = %s\n[pgbouncer]\nlisten_addr=127.0.0.1\n"+
				"listen_port=%s\nunix_socket_dir=\nauth_type=any\npool_mode=transaction\ndefault_pool_size=%d\n%s\n%s\n",
				to, port, size, unprepared, strings.Join(settings, "\n"))
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				tb.Fatal(err)
			}
			return []string{file}
		},
		url:     "postgres://postgres@%s/test?sslmode=disable",
		ready:   postgresReady,
		account: as,
		dir:     dir,
		quit:    syscall.SIGTERM,
	})
}
