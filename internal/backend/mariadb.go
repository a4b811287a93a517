package backend

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// StartMariaDB starts a MariaDB server with a data directory of its own. The user root
// needs no password; the database test is empty. args are added to those of mariadbd:
// "--max-connections=10".
//
// What is committed survives Kill. Root starts it as the user mysql, or nobody.
func StartMariaDB(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startMariaDB(tb, nil, func(int) []string { return args })
}

// StartGalera starts a Galera cluster of two MariaDB servers, as [StartMariaDB] does, with args for both. Either
// takes writes once its wsrep_local_state_comment is Synced, which the second one's is some seconds later.
func StartGalera(tb testing.TB, args ...string) [2]*Server {
	tb.Helper()
	long(tb)
	provider := "/usr/lib/galera/libgalera_smm.so"
	if _, err := os.Stat(provider); err != nil {
		lacking(tb, "Galera is not installed (Debian's package galera-4): %v", err)
	}
	installed(tb, "rsync") // by which the second one gets the first one's data
	var nodes [2]*Server
	first := ""
	for i := range nodes {
		nodes[i] = startMariaDB(tb, []int{1, 2, 3}, func(port int) []string {
			at := func(distance int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port+distance)) }
			cluster := []string{"--wsrep-cluster-address=gcomm://" + first}
			if i == 0 {
				first = at(1)
				cluster = append(cluster, "--wsrep-new-cluster")
			}
			return slices.Concat(cluster, []string{
				"--wsrep-on=ON", "--wsrep-provider=" + provider, "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
				"--wsrep-sst-method=rsync", "--wsrep-sst-receive-address=" + at(3), "--wsrep-node-address=" + at(1),
				"--wsrep-provider-options=gmcast.listen_addr=tcp://" + at(1) + ";ist.recv_addr=" + at(2) + ";gcache.size=16M",
			}, args)
		})
	}
	return nodes
}

// startMariaDB starts a server with more arguments, which may depend on its port; it takes others at the given
// distances from that, too.
func startMariaDB(tb testing.TB, also []int, more func(port int) []string) *Server {
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
			n, _ := strconv.Atoi(port)
			return append([]string{
				"--no-defaults", "--datadir=" + data, "--port=" + port, "--socket=" + filepath.Join(dir, "socket"),
				"--bind-address=127.0.0.1", "--skip-networking=0", "--skip-name-resolve",
				"--pid-file=" + filepath.Join(dir, "pid"), "--tmpdir=" + dir,
				"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M",
			}, more(n)...)
		},
		url: "mysql://root@%s/test",
		ready: func(addr string) error {
			return probeMySQL(&url.URL{Host: addr})
		},
		account: as,
		dir:     dir,
		also:    also,
	})
}
