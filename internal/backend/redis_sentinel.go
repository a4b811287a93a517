package backend

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Sentinel is a Redis master with one replica and three sentinels, which promote the
// replica when two of them miss the master. It belongs to one test. It is not safe for
// concurrent use; the servers are.
type Sentinel struct {
	// Master and Replica are the data servers in their present roles: Failover and
	// AwaitFailover exchange them.
	Master, Replica *Server

	sentinels []*Server
}

const masterSet = "idem"

// URL returns redis://sentinel?addr=sentinel&addr=sentinel&master_set=idem, each sentinel
// as host:port, as rueidis reads it.
func (s *Sentinel) URL() string {
	url := "redis://" + s.sentinels[0].Addr() + "?"
	for _, sentinel := range s.sentinels[1:] {
		url += "addr=" + sentinel.Addr() + "&"
	}
	return url + "master_set=" + masterSet
}

// StartRedisSentinel starts a master, its replica and three sentinels, and returns when
// they all know each other and the replica is in step. A master that was killed is missed
// when [Sentinel.AwaitFailover] is called, and else after ten seconds: on a busy machine it may be slow. args are those of the data servers, as for [StartRedis].
//
// Replication is asynchronous: what the master has acknowledged may be lost in a
// failover, unless the test waits for the replica (WAIT) first.
func StartRedisSentinel(tb testing.TB, args ...string) *Sentinel {
	tb.Helper()
	long(tb)
	s := new(Sentinel)
	// By default the first replica waits 5 s, for others to share the transfer with.
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s.Master = startRedis(tb, "", nil, args...)
	host, port, _ := net.SplitHostPort(s.Master.Addr())
	s.Replica = startRedis(tb, fmt.Sprintf("replicaof %s %s\n", host, port), nil, args...)
	if err := eventually(func() error {
		return says(s.Replica.Addr(), []string{"INFO", "replication"}, "role:slave", "master_link_status:up")
	}); err != nil {
		tb.Fatal("the replica does not follow its master: ", err)
	}
	for range 3 {
		s.sentinels = append(s.sentinels, startSentinel(tb, host, port))
	}
	if err := eventually(func() error {
		for _, sentinel := range s.sentinels {
			view, err := ask(sentinel.Addr(), "SENTINEL", "MASTER", masterSet)
			if err != nil {
				return err
			}
			want := map[string]string{"flags": "master", "num-slaves": "1", "num-other-sentinels": "2"}
			if err := has(view, want); err != nil {
				return fmt.Errorf("sentinel at %s: %w", sentinel.Addr(), err)
			}
			replicas, err := ask(sentinel.Addr(), "SENTINEL", "REPLICAS", masterSet)
			if err != nil {
				return err
			}
			list, _ := replicas.([]any)
			if len(list) != 1 {
				return fmt.Errorf("sentinel at %s: replicas are %q", sentinel.Addr(), replicas)
			}
			if err := has(list[0], map[string]string{"flags": "slave", "master-link-status": "ok"}); err != nil {
				return fmt.Errorf("sentinel at %s: the replica: %w", sentinel.Addr(), err)
			}
		}
		return nil
	}); err != nil {
		tb.Fatal("the sentinels do not find each other: ", err)
	}
	// No such hurry from now on. For four of these periods a sentinel lets a master be one
	// that ought to be a replica, and then turns it back. In that time, the sentinel that
	// promotes a replica has to see that it is done, and tell the others.
	for _, sentinel := range s.sentinels {
		_, _ = ask(sentinel.Addr(), "SENTINEL", "DEBUG", "PUBLISH-PERIOD", "1000")
	}
	return s
}

func startSentinel(tb testing.TB, masterHost, masterPort string) *Server {
	tb.Helper()
	program := installed(tb, "redis-server")
	dir := dataDir(tb, nil)
	file := filepath.Join(dir, "sentinel.conf") // the sentinel writes what it learns into it
	// A server that sentinels have just begun to watch is asked after a second only, and is
	// missed if it has not answered by then: the limit has to be more than a second.
	config := fmt.Sprintf("sentinel monitor %s %s %s 2\n", masterSet, masterHost, masterPort) +
		fmt.Sprintf("sentinel down-after-milliseconds %s 10000\n", masterSet) +
		fmt.Sprintf("sentinel failover-timeout %s 3000\n", masterSet)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	sentinel := start(tb, plan{
		program: program,
		args: func(port string) []string {
			return []string{file, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no", "--sentinel"}
		},
		url:   "redis://%s",
		ready: redisReady,
		dir:   dir,
	})
	// Sentinels tell of themselves every two seconds and look at the servers every ten.
	// Redis 7 can be told to hurry; an older one sends an error, and all takes longer.
	_, _ = ask(sentinel.Addr(), "SENTINEL", "DEBUG", "PUBLISH-PERIOD", "100", "INFO-PERIOD", "200", "PING-PERIOD", "200")
	return sentinel
}

// has compares a reply of pairs with what it ought to say.
func has(reply any, want map[string]string) error {
	list, _ := reply.([]any)
	got := map[any]any{}
	for i := 0; i+1 < len(list); i += 2 {
		got[list[i]] = list[i+1]
	}
	for name, value := range want {
		if got[name] != value {
			return fmt.Errorf("%s is %q, not %q", name, got[name], value)
		}
	}
	return nil
}

// Failover has the sentinels promote the replica, while the master lives. It returns when
// the roles have been exchanged, as AwaitFailover does, and the old master follows the
// new one.
func (s *Sentinel) Failover() {
	s.Master.tb.Helper()
	_, port, _ := net.SplitHostPort(s.Replica.Addr())
	if err := eventually(func() error {
		view, err := ask(s.sentinels[0].Addr(), "SENTINEL", "MASTER", masterSet)
		if err != nil || has(view, map[string]string{"port": port}) == nil {
			return err
		}
		// A failover is begun again if it has been given up.
		if has(view, map[string]string{"flags": "master"}) == nil {
			if _, err := ask(s.sentinels[0].Addr(), "SENTINEL", "FAILOVER", masterSet); err != nil {
				return err
			}
		}
		return errors.New("a failover is in progress")
	}); err != nil {
		s.Master.tb.Error("the sentinels do not fail over: ", err)
		return
	}
	s.AwaitFailover()
	if err := eventually(func() error {
		return says(s.Replica.Addr(), []string{"INFO", "replication"}, "role:slave", "master_link_status:up")
	}); err != nil {
		s.Master.tb.Error("the old master does not follow: ", err)
	}
}

// AwaitFailover is for a test that has killed (or frozen) the master. It returns when all
// sentinels name the replica as the master and the replica says so itself. From then on
// it is s.Master, and the old master is s.Replica.
func (s *Sentinel) AwaitFailover() {
	s.Master.tb.Helper()
	host, port, _ := net.SplitHostPort(s.Replica.Addr())
	for _, sentinel := range s.sentinels {
		_, _ = ask(sentinel.Addr(), "SENTINEL", "SET", masterSet, "down-after-milliseconds", "1500")
	}
	if err := eventually(func() error {
		for _, sentinel := range s.sentinels {
			named, err := ask(sentinel.Addr(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterSet)
			if err != nil {
				return err
			}
			if addr, _ := named.([]any); len(addr) != 2 || addr[0] != host || addr[1] != port {
				return fmt.Errorf("sentinel at %s names %q as the master", sentinel.Addr(), named)
			}
		}
		return says(s.Replica.Addr(), []string{"INFO", "replication"}, "role:master")
	}); err != nil {
		s.Master.tb.Error("the replica is not promoted: ", err)
		return
	}
	s.Master, s.Replica = s.Replica, s.Master
}
