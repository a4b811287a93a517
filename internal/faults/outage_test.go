//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
)

// outage is a way in which a store is away for a while, and keeps what it has acknowledged.
type outage struct {
	name  string
	begin func(t *testing.T, url string) (end func())
}

// outagesOf are those of a server, and one by statements of its own.
func outagesOf(server *backend.Server, own outage) []outage {
	return []outage{
		own,
		{"frozen", func(*testing.T, string) func() { server.Freeze(); return server.Thaw }},
		{"killed, restarted", func(*testing.T, string) func() { server.Kill(); return server.Start }},
	}
}

type outageStore struct {
	name, flag string                                                                       // flag is what -store calls it
	start      func(t *testing.T) (fresh func(t *testing.T) (url string), outages []outage) // fresh returns an empty store
}

// outageStores are stores with their outages.
var outageStores = []outageStore{
	{"Redis", "redis", redisOutages(backend.StartRedis)},
	{"Valkey", "valkey", redisOutages(backend.StartValkey)},
	{"PostgreSQL", "postgres", func(t *testing.T) (func(*testing.T) string, []outage) {
		server := postgres.start(t, "-c", "max_connections=400")
		fresh := func(t *testing.T) string { return freshDatabase(t, server) }
		// It holds for sessions that begin: the others are ended.
		const others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity " +
			"WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
		return fresh, outagesOf(server, readOnly(server,
			[]string{"ALTER ROLE postgres SET default_transaction_read_only = on", others},
			[]string{"SET default_transaction_read_only = off", "ALTER ROLE postgres RESET default_transaction_read_only", others}))
	}},
	{"MariaDB", "mysql", func(t *testing.T) (func(*testing.T) string, []outage) {
		server := mariaDB.start(t, "--max-connections=400")
		fresh := func(t *testing.T) string { // for a user who may not write what nobody may
			url := freshDatabase(t, server)
			name := url[strings.LastIndex(url, "/")+1:]
			execute(t, server.URL(), "CREATE USER IF NOT EXISTS shop@'%'", "GRANT ALL ON "+name+".* TO shop@'%'")
			return strings.Replace(url, "root@", "shop@", 1)
		}
		return fresh, outagesOf(server, readOnly(server, []string{"SET GLOBAL read_only = ON"}, []string{"SET GLOBAL read_only = OFF"}))
	}},
	{"SQLite", "sqlite", func(*testing.T) (func(*testing.T) string, []outage) {
		fresh := func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "idem.db") }
		return fresh, []outage{{"another connection holds the write lock", func(t *testing.T, url string) func() {
			conn, err := openSQL(t, url).Conn(context.Background())
			require.NoError(t, err)
			for deadline := time.Now().Add(patience); ; {
				if _, err = conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err == nil || time.Now().After(deadline) {
					break
				}
			}
			require.NoError(t, err)
			return func() {
				_, err := conn.ExecContext(context.Background(), "ROLLBACK")
				assert.NoError(t, err)
				assert.NoError(t, conn.Close())
			}
		}}}
	}},
}

func redisOutages(start func(testing.TB, ...string) *backend.Server) func(*testing.T) (func(*testing.T) string, []outage) {
	return func(t *testing.T) (func(*testing.T) string, []outage) {
		server := start(t, durable...)
		fresh := func(t *testing.T) string { command(t, server, "FLUSHALL"); return server.URL() }
		return fresh, outagesOf(server, outage{"refusing writes", func(t *testing.T, _ string) func() {
			replicas := func(n string) { command(t, server, "CONFIG", "SET", "min-replicas-to-write", n) }
			replicas("1")
			return func() { replicas("0") }
		}})
	}
}

// readOnly is an outage of a server that refuses writes.
func readOnly(server *backend.Server, begin, end []string) outage {
	return outage{"refusing writes", func(t *testing.T, _ string) func() {
		execute(t, server.URL(), begin...)
		return func() { execute(t, server.URL(), end...) }
	}}
}

func execute(t *testing.T, url string, statements ...string) {
	db := openSQL(t, url)
	defer db.Close()
	db.SetMaxOpenConns(1) // one session
	for _, s := range statements {
		_, err := db.ExecContext(context.Background(), s)
		require.NoError(t, err, s)
	}
}

// TestOutages takes the store away while runs end in two processes: their clients get their answers all the same, and what has a
// result does not run again unless the lease passes and another process is asked, or the process is killed.
func TestOutages(t *testing.T) {
	t.Parallel()
	runs, lengths := 60, []time.Duration{2 * time.Second}
	if os.Getenv("IDEM_LONG") != "" {
		runs, lengths = 204, []time.Duration{time.Second, 5 * time.Second, time.Minute}
	}
	program := theService(t)
	for _, s := range outageStores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			fresh, outages := s.start(t)
			if testing.Short() {
				outages = outages[:1]
			}
			for _, o := range outages {
				for _, length := range lengths {
					t.Run(fmt.Sprint(o.name, ", ", length), func(t *testing.T) { o.try(t, program, fresh(t), length, runs) })
				}
			}
		})
	}
}

// ending is how runs end in an outage, and who asks for them again.
type ending struct {
	name      string
	brief     bool // the lease is shorter than the outage
	uncertain bool
	elsewhere bool // duplicates are sent to the other process, too
	killed    bool // the process, while its runs are unsettled
}

var endings = []ending{
	{name: "the lease is longer", elsewhere: true},
	{name: "the lease is shorter, duplicates come to the process that ran", brief: true},
	{name: "the lease is shorter", brief: true, elsewhere: true},
	{name: "the lease is shorter, Uncertain", brief: true, elsewhere: true, uncertain: true},
	{name: "killed", brief: true, elsewhere: true, killed: true},
	{name: "killed, Uncertain", brief: true, elsewhere: true, killed: true, uncertain: true},
}

// frameworks are those of the processes, two for each ending.
var frameworks = []string{"gin", "fiber", "echo", "fiber3", "nethttp", "echo5"}

// outageTrial is one ending of runs. Half of them are tasks, and half of those that nobody kills have their home in either process.
type outageTrial struct {
	*trial
	ending
	processes [2]*process
	pause     time.Duration // between duplicates, at most

	over     chan struct{} // closed at the end of the outage
	dead     chan struct{} // closed when the home is killed
	answered sync.WaitGroup
	finished sync.WaitGroup

	mu   sync.Mutex
	ids  map[string]string // of operations, as their runs have them
	told int               // duplicates that got an answer during the outage where they had run
}

func (o outage) try(t *testing.T, program, url string, length time.Duration, runs int) {
	begun, spread := make(chan struct{}), min(length/2, patience/4)
	begin := sync.OnceFunc(func() { close(begun) })
	defer begin() // also when the test fails
	reached := make(chan struct{}, runs)
	runs /= len(endings)
	var trials []*outageTrial
	for i, e := range endings {
		tr := &outageTrial{trial: newTrial(t), ending: e, pause: min(length/4, 4*time.Second),
			over: make(chan struct{}), dead: make(chan struct{}), ids: map[string]string{}}
		trials = append(trials, tr)
		tr.while(func(op string, _ uint64) {
			if tr.ledger.of(op) > 1 {
				return
			}
			reached <- struct{}{}
			<-begun
			if !e.killed {
				time.Sleep(rand.N(spread))
			}
		})
		lease := length + time.Minute
		if e.brief {
			lease = length / 2
		}
		args := []string{"-store", url, "-timeout", "500ms", "-lease", lease.String(), fmt.Sprint("-uncertain=", e.uncertain),
			"-bank", bank(t, tr.called), "-framework"}
		for k := range tr.processes {
			tr.processes[k] = startProcess(tr.trial, program, 0, append(slices.Clone(args), frameworks[(2*i+k)%len(frameworks)])...)
		}
		tr.answered.Add(runs)
		for n := range runs {
			op := fmt.Sprint([]string{"op", "task"}[n/2%2], "-", i, "-", n)
			home := n % 2
			if e.killed {
				home = 0
			}
			tr.finished.Go(func() { tr.pay(op, tr.processes[home], tr.processes[1-home]) })
		}
	}
	for range cap(reached) {
		select {
		case <-reached:
		case <-time.After(patience):
			require.Fail(t, "a handler was not reached")
		}
	}

	end := o.begin(t, url)
	began := time.Now()
	begin()
	for _, tr := range trials {
		if tr.killed {
			tr.answered.Wait()
			tr.processes[0].kill()
			close(tr.dead)
		}
	}
	time.Sleep(length - time.Since(began))
	for _, tr := range trials {
		close(tr.over)
	}
	end()
	took := time.Since(began)
	for _, tr := range trials {
		tr.finished.Wait()
		tr.check(runs)
	}
	t.Logf("away for %v, all had their answers %v later", took.Round(time.Millisecond), (time.Since(began) - took).Round(time.Millisecond))
}

// called is called by the handlers.
func (tr *outageTrial) called(step, op string, attempt uint64) {
	tr.mu.Lock()
	tr.ids[op] = strings.TrimPrefix(step, "execute ")
	tr.mu.Unlock()
	tr.execute(op, attempt)
}

// pay asks for a payment until it is made, and then again and again until all who may be asked replay the same.
func (tr *outageTrial) pay(op string, home, other *process) {
	deadline := time.Now().Add(4 * patience)
	answered := sync.OnceFunc(tr.answered.Done)
	defer answered()
	for answer := ""; answer != "201"; {
		answer = home.ask(op)
		if (answer == "409 uncertain" && tr.uncertain || answer == "409 in_progress") && tr.ledger.of(op) == 0 {
			op += "." // on a busy machine, a claim was made after its caller had gone
			continue
		}
		if !assert.Contains(tr.t, []string{"201", "503 store_unavailable", "409 in_progress"}, answer, op) {
			return
		}
	}
	receipt := tr.body(op)
	answered()
	ask := []*process{home, other}
	switch {
	case tr.killed:
		<-tr.dead
		ask = ask[1:]
	case !tr.elsewhere:
		ask = ask[:1]
	}
	for over := false; ; time.Sleep(rand.N(tr.pause)) {
		select {
		case <-tr.over:
			over = true
		default:
		}
		replayed := over
		var bodies []string
		for _, p := range ask {
			got := p.ask(op)
			if p == home {
				tr.tell(got)
			}
			switch got {
			case "201 replayed", "201":
				bodies = append(bodies, tr.body(op))
			case "409 uncertain":
				assert.True(tr.t, tr.uncertain)
				replayed = replayed && tr.killed
			case "503 store_unavailable", "409 in_progress":
				replayed = false
			default:
				assert.Fail(tr.t, got, op)
			}
		}
		bodies = slices.Compact(bodies)
		if tr.ledger.of(op) == 1 {
			assert.Subset(tr.t, []string{receipt}, bodies, op)
		}
		if replayed && len(bodies) < 2 || tr.t.Failed() {
			return
		}
		if !assert.True(tr.t, time.Now().Before(deadline), "%s: still %q", op, bodies) {
			return
		}
	}
}

// tell notes what a duplicate got where its operation had run. As long as the store is away, it is always the answer.
func (tr *outageTrial) tell(got string) {
	select {
	case <-tr.over:
	default:
		assert.Equal(tr.t, "201 replayed", got)
		tr.mu.Lock()
		tr.told++
		tr.mu.Unlock()
	}
}

// check adds up what has happened.
func (tr *outageTrial) check(runs int) {
	t := tr.t
	count := func(such func(event) bool) int { return tr.processes[0].count(such) + tr.processes[1].count(such) }
	kinds := func(kind core.Kind) int { return count(func(e event) bool { return e.Kind == kind }) }
	late := func() int { return count(func(e event) bool { return e.Late }) }
	if !tr.killed {
		settled := func() bool { return late() == kinds(core.Unsettled) }
		assert.Eventually(t, settled, patience, 10*time.Millisecond, "%s: runs are never settled", tr.name)
	}
	again := 0
	for op, id := range tr.ids {
		attempts := tr.ledger.attempts(op)
		again += len(attempts) - 1
		assert.IsIncreasing(t, append([]uint64{0}, attempts...), op)
		for _, attempt := range attempts[1:] {
			assert.Equal(t, 1, count(func(e event) bool {
				return e.Kind == core.Started && e.ID == id && e.Attempt == attempt && e.Takeover
			}), "%s is no takeover", op)
		}
	}
	assert.Len(t, tr.ids, runs)
	assert.Positive(t, kinds(core.Unsettled), tr.name)
	assert.Zero(t, kinds(core.RunUnfinished), tr.name)
	if !tr.brief || !tr.elsewhere || tr.uncertain {
		assert.Zero(t, again, "%s: runs again", tr.name)
		assert.Zero(t, kinds(core.RunLost), tr.name)
	}
	t.Logf("%s: %d runs, %d second runs; %d unsettled, %d settled late, %d lost, %d leases lost; %d duplicates replayed meanwhile",
		tr.name, runs, again, kinds(core.Unsettled), late(), kinds(core.RunLost), kinds(core.LeaseLost), tr.told)
}
