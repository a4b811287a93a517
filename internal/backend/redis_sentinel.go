package backend

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Sentinel is a Redis master with one replica and a sentinel, which promotes the replica when
// it misses the master. It belongs to one test. It is not safe for concurrent use; the servers are.
type Sentinel struct {
	// Master and Replica are the data servers in their present roles: Failover and
	// AwaitFailover exchange them.
	Master, Replica *Server

	sentinel *Server
}

const masterSet = "idem"

// URL returns redis://sentinel?master_set=idem, the sentinel as host:port, as rueidis reads it.
func (s *Sentinel) URL() string { return s.sentinel.URL() + "?master_set=" + masterSet }

// StartRedisSentinel starts a master, its replica and a sentinel, and returns when
// it knows both and the replica is in step. A master that was killed is missed
// when [Sentinel.AwaitFailover] is called, and else after ten seconds: on a busy machine it may be slow.
//
// Replication is asynchronous: what the master has acknowledged may be lost in a
// failover, unless the test waits for the replica (WAIT) first.
func StartRedisSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	return startSentinel(tb, installed(tb, "redis-server"))
}

// StartValkeySentinel is StartRedisSentinel with a master and a replica as [StartValkey] has them.
func StartValkeySentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	return startSentinel(tb, valkeyServer(tb))
}

func startSentinel(tb testing.TB, program string) *Sentinel {
	tb.Helper()
	long(tb)
	// By default the first replica waits 5 s, for others to share the transfer with.
	const hurry, now = "--repl-diskless-sync-delay", "0"
	s := &Sentinel{Master: startProgram(tb, program, "", nil, hurry, now)}
	host, port, _ := net.SplitHostPort(s.Master.Addr())
	s.Replica = startProgram(tb, program, fmt.Sprintf("replicaof %s %s\n", host, port), nil, hurry, now)
	dir := dataDir(tb, nil)
	file := filepath.Join(dir, "sentinel.conf") // the sentinel writes what it learns into it
	// A server that a sentinel has just begun to watch is asked after a second only, and is
	// missed if it has not answered by then: the limit has to be more than a second.
	config := fmt.Sprintf("sentinel monitor %s %s %s 1\n", masterSet, host, port) +
		fmt.Sprintf("sentinel down-after-milliseconds %s 10000\n", masterSet) +
		fmt.Sprintf("sentinel failover-timeout %s 3000\n", masterSet)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.sentinel = start(tb, plan{
		program: installed(tb, "redis-server"),
		args: func(port string) []string {
			return []string{file, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no", "--sentinel"}
		},
		url:   "redis://%s",
		ready: redisReady,
		dir:   dir,
	})
	// A sentinel looks at the servers every ten seconds. Redis 7 can be told to hurry; an older one sends an error,
	// and all takes longer.
	_, _ = s.ask("DEBUG", "INFO-PERIOD", "200", "PING-PERIOD", "200")
	if err := eventually(func() error {
		replica, err := s.ask("REPLICAS", masterSet) // names and values
		for _, want := range [][2]string{{"flags", "slave"}, {"master-link-status", "ok"}} {
			at := slices.Index(replica, want[0])
			if err != nil || at < 0 || replica[at+1] != want[1] {
				return fmt.Errorf("the replica: %q, %v", replica, err)
			}
		}
		return nil
	}); err != nil {
		tb.Fatal("the sentinel does not find the replica: ", err)
	}
	return s
}

func (s *Sentinel) ask(command ...string) ([]string, error) {
	return ask(s.sentinel.Addr(), append([]string{"SENTINEL"}, command...)...)
}

// Failover has the sentinel promote the replica, while the master lives. It returns when
// the roles have been exchanged, as AwaitFailover does.
func (s *Sentinel) Failover() { s.awaitFailover(true) }

// AwaitFailover is for a test that has killed (or frozen) the master. It returns when the
// sentinel names the replica as the master and the replica says so itself. From then on
// it is s.Master, and the old master is s.Replica.
func (s *Sentinel) AwaitFailover() {
	_, _ = s.ask("SET", masterSet, "down-after-milliseconds", "1500")
	s.awaitFailover(false)
}

func (s *Sentinel) awaitFailover(demanded bool) {
	s.Master.tb.Helper()
	host, port, _ := net.SplitHostPort(s.Replica.Addr())
	if err := eventually(func() error {
		named, err := s.ask("GET-MASTER-ADDR-BY-NAME", masterSet)
		if err != nil {
			return err
		}
		if !slices.Equal(named, []string{host, port}) {
			if demanded { // again, if it has been given up; while one is in progress it is refused
				_, _ = s.ask("FAILOVER", masterSet)
			}
			return fmt.Errorf("the sentinel names %q as the master", named)
		}
		return says(s.Replica.Addr(), []string{"INFO", "replication"}, "role:master")
	}); err != nil {
		s.Master.tb.Error("the replica is not promoted: ", err)
		return
	}
	s.Master, s.Replica = s.Replica, s.Master
}
