package backend

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// StartMariaDB starts a MariaDB server with a data directory of its own. The user root
// needs no password; the database test is empty. args are added to those of mariadbd:
// "--max-connections=10".
//
// What is committed survives Kill. Root starts it as the user mysql, or nobody.
func StartMariaDB(tb testing.TB, args ...string) *Server {
	tb.Helper()
	program := installed(tb, "mariadbd", "/usr/sbin", "/usr/local/sbin")
	install := installed(tb, "mariadb-install-db")
	as, err := unprivileged("mysql", "nobody")
	if err != nil {
		lacking(tb, "MariaDB does not run as root: %v", err)
	}
	dir := dataDir(tb, as)
	data := filepath.Join(dir, "data")
	if err := runToEnd([]string{
		install, "--no-defaults", "--datadir=" + data, "--tmpdir=" + dir,
		"--auth-root-authentication-method=normal", "--skip-test-db",
	}, "", as); err != nil {
		tb.Fatal(err)
	}
	// A database is a directory.
	test := filepath.Join(data, "test")
	if err := os.Mkdir(test, 0o700); err != nil {
		tb.Fatal(err)
	}
	if as != nil {
		if err := os.Chown(test, as.uid, as.gid); err != nil {
			tb.Fatal(err)
		}
	}
	return start(tb, plan{
		program: program,
		args: func(port string) []string {
			return append([]string{
				"--no-defaults", "--datadir=" + data, "--port=" + port, "--socket=" + filepath.Join(dir, "socket"),
				"--bind-address=127.0.0.1", "--skip-networking=0", "--skip-name-resolve",
				"--pid-file=" + filepath.Join(dir, "pid"), "--tmpdir=" + dir,
				"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M",
			}, args...)
		},
		url: "mysql://root@%s/test",
		ready: func(addr string) error {
			return probeMySQL(&url.URL{Host: addr, User: url.User("root"), Path: "/test"}, patience)
		},
		account: as,
		dir:     dir,
	})
}
