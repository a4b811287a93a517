//go:build unix

package faults_test

import (
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
)

// serviceLease is longer than the others: on a busy machine, too, another process gets its
// answer before the lease of a killed one has passed.
const serviceLease = 6 * time.Second

func TestProcesses(t *testing.T) {
	t.Parallel()
	program := theService(t)
	var skewed string
	if !testing.Short() { // it compiles most of the standard library anew
		goroot, file := overlay(t)
		var err error
		skewed, err = buildService(t.TempDir(), []string{"GOROOT=" + goroot}, "-trimpath", "-tags", "skewed", "-overlay", file)
		require.NoError(t, err)
	}
	for _, s := range everyStore(t) {
		t.Run(s.name, func(t *testing.T) {
			shortly(t, s.name)
			frozenAndKilled(t, program, s.name, s.fresh)
			if s.name != "Redis" {
				processInTx(t, program, s.name, s.fresh)
			}
			if s.name == "SQLite" {
				uncertain(t, program, s.name, s.fresh)
			} else if skewed != "" { // the clock of SQLite would be the process's
				wrongClocks(t, skewed, s.name, s.fresh)
			}
		})
	}
}

// everyStore returns the stores on which processes are killed, each with what makes an empty one.
func everyStore(t *testing.T) []freshStore {
	return []freshStore{
		{"Redis", func(t *testing.T) string { return backend.StartRedis(t).URL() }},
		{"PostgreSQL", postgres.serve(t)},
		{"MariaDB", mariaDB.serve(t)},
		{"SQLite", func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "idem.db") }},
	}
}

type freshStore struct {
	name  string
	fresh func(t *testing.T) (url string)
}

// shortly skips the stores of which two are enough with -short.
func shortly(t *testing.T, name string) {
	if testing.Short() && name != "Redis" && name != "SQLite" {
		t.Skip("it takes long")
	}
}

// pair starts the service twice on an empty store: on Gin and on Fiber, or, with clocks that are off by skew, on net/http.
func pair(t *testing.T, program, store string, skew time.Duration, args ...string) (tr *trial, one, other *process) {
	tr = newTrial(t)
	bank := bank(t, func(_, op string, attempt uint64) { tr.execute(op, attempt) })
	args = append(args, "-store", store, "-lease", serviceLease.String(), "-bank", bank, "-framework")
	frameworks := []string{"gin", "fiber"}
	if skew != 0 {
		frameworks = []string{"nethttp", "nethttp"}
	}
	one = startProcess(tr, program, skew, append(slices.Clone(args), frameworks[0])...)
	other = startProcess(tr, program, -skew, append(slices.Clone(args), frameworks[1])...)
	return tr, one, other
}

func frozenAndKilled(t *testing.T, program, name string, fresh func(t *testing.T) (url string)) {
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		tr, gin, fiber := pair(t, program, fresh(t), 0)
		killInHandler(tr, gin, fiber)
		tr.report(services, "process on Gin killed (SIGKILL) in its handlers; one on Fiber takes over", name,
			tally{executions: 6, duplicates: 3}, three...)
	})
	t.Run("frozen", func(t *testing.T) {
		t.Parallel()
		tr, gin, fiber := pair(t, program, fresh(t), 0)
		answers, finish := freezeInHandler(tr, gin)
		for _, op := range three {
			fiber.until("201", op)
		}
		gin.thaw()
		gin.await(core.LeaseLost, len(three)) // it notices while its handlers still run
		finish()
		for i, op := range three {
			require.Equal(t, "201", <-answers[i], "the client gets the real response")
			require.Equal(t, []uint64{1, 2}, tr.ledger.attempts(op))
			for _, p := range []*process{gin, fiber} {
				require.Equal(t, "201 replayed", p.send(op))
				require.Equal(t, op+", attempt 2", tr.body(op), "the stale owner has changed nothing")
			}
		}
		gin.await(core.RunLost, len(three)) // when it brought its results
		tr.report(services, "process on Gin frozen (SIGSTOP) in its handlers beyond the lease; one on Fiber takes over; "+
			"thawed, the stale owner is refused", name, tally{executions: 6, duplicates: 3}, three...)
	})
}

func uncertain(t *testing.T, program, name string, fresh func(t *testing.T) (url string)) {
	t.Run("killed, Uncertain", func(t *testing.T) {
		t.Parallel()
		tr, gin, fiber := pair(t, program, fresh(t), 0, "-uncertain")
		tr.while(func(string, uint64) { gin.kill() })
		require.Equal(t, "none", gin.send("op-1"))
		fiber.until("409 uncertain", "op-1")
		require.Equal(t, []uint64{1}, tr.ledger.attempts("op-1"))
		tr.report(services, "process on Gin killed (SIGKILL) in its handler; Uncertain", name, tally{executions: 1}, "op-1")
	})
	t.Run("frozen, Uncertain", func(t *testing.T) {
		t.Parallel()
		tr, gin, fiber := pair(t, program, fresh(t), 0, "-uncertain")
		answers, finish := freezeInHandler(tr, gin)
		for _, op := range three {
			fiber.until("409 uncertain", op)
		}
		gin.thaw()
		finish()
		for i, op := range three {
			require.Equal(t, "201", <-answers[i])
			require.Equal(t, "201 replayed", fiber.send(op), "nobody has taken it over")
			require.Equal(t, op+", attempt 1", tr.body(op))
		}
		tr.report(services, "process on Gin frozen (SIGSTOP) in its handlers beyond the lease; Uncertain; thawed, its results are kept",
			name, tally{executions: 3}, three...)
	})
}

func wrongClocks(t *testing.T, program, name string, fresh func(t *testing.T) (url string)) {
	for _, clock := range []struct {
		name string
		skew time.Duration
	}{
		{"one process's clock one hour ahead, another's one hour behind", time.Hour},
		{"one process's clock one hour behind, another's one hour ahead", -time.Hour},
	} {
		t.Run(clock.name, func(t *testing.T) {
			t.Parallel()
			tr, one, other := pair(t, program, fresh(t), clock.skew)
			require.Equal(t, clock.skew, one.skew())
			require.Equal(t, -clock.skew, other.skew())
			require.Equal(t, "201", one.send("op-0"))
			require.Equal(t, "201 replayed", other.send("op-0"))
			require.Equal(t, "201 replayed", one.send("op-0"))
			killInHandler(tr, one, other)
			tr.report(services, clock.name+"; it is killed in its handlers, and the other takes over after the lease", name,
				tally{executions: 7, duplicates: 3}, append([]string{"op-0"}, three...)...)
		})
	}
}

// hold keeps the first runs of operations in their handlers. reached returns when all are
// there; release lets them go on.
func hold(tr *trial) (reached, release func()) {
	there, gone := make(chan struct{}, len(three)), make(chan struct{})
	release = sync.OnceFunc(func() { close(gone) })
	tr.t.Cleanup(release) // also when the test fails
	tr.while(func(_ string, attempt uint64) {
		if attempt == 1 {
			there <- struct{}{}
			<-gone
		}
	})
	reached = func() {
		for range three {
			select {
			case <-there:
			case <-time.After(patience):
				require.Fail(tr.t, "a handler was not reached")
			}
		}
	}
	return reached, release
}

// killInHandler kills a process that runs three operations. Another one takes them over, not
// before the lease has passed and not long after.
func killInHandler(tr *trial, victim, heir *process) {
	t := tr.t
	reached, release := hold(tr)
	var answers []<-chan string
	for _, op := range three {
		answers = append(answers, victim.sent(op))
	}
	reached()
	for _, op := range three {
		require.Equal(t, "409 in_progress", heir.send(op))
	}
	victim.kill()
	release()
	for i := range three {
		require.Equal(t, "none", <-answers[i])
	}
	for _, op := range three {
		require.Equal(t, "409 in_progress", heir.send(op), "the lease stands")
	}
	for _, op := range three {
		heir.until("201", op)
		require.Equal(t, op+", attempt 2", tr.body(op))
		require.Equal(t, "201 replayed", heir.send(op))
		require.Equal(t, op+", attempt 2", tr.body(op))
		require.Equal(t, []uint64{1, 2}, tr.ledger.attempts(op))
	}
}

// freezeInHandler freezes a process that runs three operations. Their handlers go on when
// finish is called.
func freezeInHandler(tr *trial, p *process) (answers []<-chan string, finish func()) {
	reached, release := hold(tr)
	for _, op := range three {
		answers = append(answers, p.sent(op))
	}
	reached()
	p.freeze()
	return answers, release
}

// processInTx kills a process in the middle of its transaction, or just behind it.
func processInTx(t *testing.T, program, name string, fresh func(t *testing.T) (url string)) {
	for _, at := range []struct{ step, fault, last string }{
		{"inside", "process killed (SIGKILL) inside the transaction, after the change; another one is asked", "201"},
		{"committed", "process killed (SIGKILL) just after COMMIT, before the answer; another one is asked", "201 replayed"},
	} {
		t.Run("DoTx, killed "+at.step, func(t *testing.T) {
			t.Parallel()
			url := fresh(t)
			db := openSQL(t, url)
			_, err := db.ExecContext(t.Context(), payments)
			require.NoError(t, err)
			tr := newTrial(t)
			var victim atomic.Pointer[process]
			bank := bank(t, func(step, _ string, _ uint64) {
				if p := victim.Load(); p != nil && step == at.step {
					p.kill()
				}
			})
			args := []string{"-store", url, "-bank", bank}
			heir := startProcess(tr, program, 0, args...)
			for _, op := range three {
				p := startProcess(tr, program, 0, args...)
				victim.Store(p)
				require.Equal(t, "none", p.send(op))
				victim.Store(nil)
				require.Equal(t, at.last, heir.send(op))
				require.Equal(t, "201 replayed", heir.send(op))
			}
			audit(tr, db, three...)
			tr.report(transactions, at.fault, name, tally{executions: 3}, three...)
		})
	}
}
