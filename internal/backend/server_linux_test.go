package backend

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

func TestRedisKeepsNothing(t *testing.T) {
	t.Parallel()
	s := StartRedis(t)
	first := s.Pid()
	_, err := ask(s.Addr(), "SET", "key", "value")
	require.NoError(t, err)

	s.Start() // it runs
	require.Equal(t, first, s.Pid())
	s.Kill()
	require.Zero(t, s.Pid())
	s.Kill() // it does not run
	_, err = ask(s.Addr(), "GET", "key")
	require.ErrorContains(t, err, "refused")

	addr := s.Addr()
	s.Start()
	require.Equal(t, addr, s.Addr())
	require.Equal(t, "redis://"+addr, s.URL())
	require.NotEqual(t, first, s.Pid())
	got, err := ask(s.Addr(), "GET", "key")
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestRedisKeepsWhatItIsTold(t *testing.T) {
	t.Parallel()
	s := StartRedis(t, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "2mb")
	for i := range 3 {
		n, err := ask(s.Addr(), "INCR", "runs")
		require.NoError(t, err)
		require.Equal(t, int64(i+1), n)
		s.Kill()
		s.Start()
	}
	limit, err := ask(s.Addr(), "CONFIG", "GET", "maxmemory")
	require.NoError(t, err)
	require.Equal(t, []any{"maxmemory", "2097152"}, limit)
	_, err = ask(s.Addr(), "DEBUG", "SLEEP", "0")
	require.NoError(t, err)
}

func TestRedisFreezes(t *testing.T) {
	t.Parallel()
	s := StartRedis(t)
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	defer conn.Close()
	ping := func() error {
		_, err := conn.Write([]byte("PING\r\n"))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = conn.Read(make([]byte, 7))
		return err
	}

	s.Thaw() // it is not frozen
	s.Freeze()
	require.ErrorIs(t, ping(), os.ErrDeadlineExceeded)
	s.Freeze() // it is frozen
	s.Thaw()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(startLimit)))
	got := make([]byte, 7)
	_, err = conn.Read(got)
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", string(got)) // what was sent while it was frozen

	s.Freeze()
	s.Kill()
	s.Thaw() // it does not run
	s.Start()
	require.NoError(t, redisReady(s.Addr()))
	s.Freeze() // for the cleanup
}

func TestFreezeNothing(t *testing.T) {
	t.Parallel()
	trial := try(t, func(tb testing.TB) {
		s := StartRedis(tb)
		s.Kill()
		s.Freeze()
	})
	require.True(t, trial.failed || trial.skipped)
	require.NotContains(t, trial.said, "panic")
}

// A server that cannot start says why, and leaves nothing behind.
func TestStartFails(t *testing.T) {
	t.Parallel()
	StartRedis(t) // or skip
	trial := try(t, func(tb testing.TB) { StartRedis(tb, "--no-such-option", "yes") })
	require.True(t, trial.failed)
	require.Contains(t, trial.said, "redis-server has ended")
	require.Contains(t, trial.said, "no-such-option")

	trial = try(t, func(tb testing.TB) {
		s := StartRedis(tb)
		s.Kill()
		s.argv = append(s.argv, "--no-such-option", "yes")
		s.Start()
	})
	require.True(t, trial.failed)
	require.Contains(t, trial.said, "no-such-option")
	require.Contains(t, trial.said, "the end of the log")
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	s := StartPostgres(t, "-c", "max_connections=17")
	db, err := sql.Open("pgx", s.URL())
	require.NoError(t, err)
	defer db.Close()
	var limit int
	require.NoError(t, db.QueryRow("SELECT setting::int FROM pg_settings WHERE name = 'max_connections'").Scan(&limit))
	require.Equal(t, 17, limit)
	testDatabase(t, s, db, "SELECT pg_backend_pid()")
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	s := StartMariaDB(t, "--max-connections=17")
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = "root", "tcp", s.Addr(), "test"
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	require.Equal(t, "mysql://root@"+s.Addr()+"/test", s.URL())
	var limit int
	require.NoError(t, db.QueryRow("SELECT @@max_connections").Scan(&limit))
	require.Equal(t, 17, limit)
	testDatabase(t, s, db, "")
}

// testDatabase kills and freezes a database server. child is a query for the process that
// serves a connection, or empty.
func testDatabase(t *testing.T, s *Server, db *sql.DB, child string) {
	exec := func(query string) {
		t.Helper()
		_, err := db.Exec(query)
		require.NoError(t, err)
	}
	count := func() (n int) {
		t.Helper()
		// The pool may hold a connection to the server that was killed.
		require.NoError(t, eventually(func() error { return db.QueryRow("SELECT count(*) FROM kept").Scan(&n) }))
		return n
	}
	exec("CREATE TABLE kept (id int PRIMARY KEY)")
	for i := range 2 {
		exec(fmt.Sprintf("INSERT INTO kept VALUES (%d)", i))
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO kept VALUES (100)")
		require.NoError(t, err)
		pid := s.Pid()
		if child != "" {
			require.NoError(t, tx.QueryRow(child).Scan(&pid))
			require.NotEqual(t, s.Pid(), pid)
		}
		s.Kill()
		require.NoError(t, await(pid, 'Z', 'X'))
		require.Error(t, tx.Commit())
		s.Start()
		require.Equal(t, i+1, count(), "what is committed is kept, and nothing else")
	}

	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	s.Freeze()
	asked := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	go func() {
		_, err := conn.ExecContext(ctx, "INSERT INTO kept VALUES (2)")
		asked <- err
	}()
	select {
	case err := <-asked:
		t.Fatal("a frozen server has answered: ", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.Thaw()
	require.NoError(t, <-asked)
	require.Equal(t, 3, count())
	s.Freeze() // for the cleanup
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	long(t)
	s := StartRabbitMQ(t, "channel_max = 17")
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	require.NoError(t, probeAMQP(u, patience))
	tree := s.process.tree()
	require.Greater(t, len(tree), 1, "Erlang has processes beside the node")
	s.Kill()
	for _, pid := range tree {
		require.NoError(t, await(pid, 'Z', 'X'))
	}
	require.Error(t, probeAMQP(u, patience))
	s.Start()
	require.NoError(t, probeAMQP(u, patience))

	s.Freeze()
	require.ErrorContains(t, probeAMQP(u, 50*time.Millisecond), "timeout")
	s.Thaw()
	require.NoError(t, eventually(func() error { return probeAMQP(u, patience) }))
	s.Freeze() // for the cleanup
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t)
	require.Len(t, c.Nodes, 3)
	option, err := rueidis.ParseURL(c.URL())
	require.NoError(t, err)
	require.Equal(t, []string{c.Nodes[0].Addr(), c.Nodes[1].Addr(), c.Nodes[2].Addr()}, option.InitAddress)
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	defer client.Close()
	set := func(key string, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return client.Do(ctx, client.B().Set().Key(key).Value("value").Build()).Error()
	}
	for i := range 50 {
		require.NoError(t, set(strconv.Itoa(i), startLimit))
	}
	for _, node := range c.Nodes {
		size, err := ask(node.Addr(), "DBSIZE")
		require.NoError(t, err)
		require.Positive(t, size)
	}

	// The slot of "foo" is 12182, of the last third; that of "bar" is 5061, of the first.
	c.Nodes[2].Kill()
	require.Error(t, set("foo", time.Second))
	require.NoError(t, set("bar", startLimit))
	c.Nodes[2].Start()
	require.NoError(t, eventually(func() error { return set("foo", time.Second) }))
}

func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	s := StartRedisSentinel(t)
	option, err := rueidis.ParseURL(s.URL())
	require.NoError(t, err)
	require.Equal(t, "idem", option.Sentinel.MasterSet)
	require.Len(t, option.InitAddress, 3)
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	defer client.Close()
	set := func(key string, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return client.Do(ctx, client.B().Set().Key(key).Value("value").Build()).Error()
	}
	get := func(server *Server, key string) error {
		value, err := ask(server.Addr(), "GET", key)
		if err == nil && value != "value" {
			err = fmt.Errorf("%s is %v", key, value)
		}
		return err
	}
	require.NoError(t, set("first", startLimit))
	require.NoError(t, get(s.Master, "first"))
	require.NoError(t, eventually(func() error { return get(s.Replica, "first") }))

	master, replica := s.Master, s.Replica
	s.Failover()
	require.Same(t, master, s.Replica)
	require.Same(t, replica, s.Master)
	require.NoError(t, eventually(func() error { return set("second", time.Second) }))
	require.NoError(t, get(s.Master, "second"))
	require.NoError(t, eventually(func() error { return get(s.Replica, "second") }))

	s.Master.Kill()
	s.AwaitFailover()
	require.Same(t, master, s.Master)
	require.NoError(t, get(s.Master, "second"))
	require.NoError(t, eventually(func() error { return set("third", time.Second) }))
	require.NoError(t, get(s.Master, "third"))

	// It comes back as a replica, some time later.
	s.Replica.Start()
	require.NoError(t, eventually(func() error { return get(s.Replica, "third") }))
}

// Nothing is left behind, whatever has become of the server.
func TestCleanup(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"running", "frozen", "killed"} {
		for name, start := range map[string]func(testing.TB) *Server{
			"redis":    func(tb testing.TB) *Server { return StartRedis(tb) },
			"postgres": func(tb testing.TB) *Server { return StartPostgres(tb) },
		} {
			t.Run(name+" "+end, func(t *testing.T) {
				t.Parallel()
				var s *Server
				var tree []int
				trial := try(t, func(tb testing.TB) {
					s = start(tb)
					tree = s.process.tree()
					switch end {
					case "frozen":
						s.Freeze()
					case "killed":
						s.Kill()
					}
				})
				if trial.skipped {
					t.Skip(trial.said)
				}
				require.False(t, trial.failed, trial.said)
				require.NotEmpty(t, tree)
				for _, pid := range tree {
					require.NoError(t, await(pid, 'Z', 'X'))
				}
				dir := strings.TrimSuffix(s.log, "/log")
				require.NoDirExists(t, dir)
			})
		}
	}
}
