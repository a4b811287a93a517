//go:build unix

package faults_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// What make chaos passes on.
var (
	chaosStore = flag.String("store", "redis", "for TestChaos: redis, valkey, postgres, mysql or sqlite; its server is struck, too")
	chaosURL   = flag.String("url", "", "a store of yours for TestChaos, redis://…, postgres://… or mysql://…; its server is left alone")
	chaosTime  = flag.Duration("duration", 4*time.Second, "for how long TestChaos makes faults")
	chaosSeed  = flag.Uint64("seed", 0, "chooses the faults of TestChaos; 0: by chance")
)

// TestChaos is make chaos: processes of a service are killed, frozen and cut off while clients ask them for operations, again and again.
// Each effect is there once, and everybody gets the same answer.
func TestChaos(t *testing.T) {
	t.Parallel()
	c := newChaos(t, os.Stdout, cmp.Or(*chaosSeed, rand.Uint64N(1_000_000)))
	if c.run(*chaosTime) > 0 {
		t.Fail()
	}
}

// TestChaosIsNoticed plants a fault in the service.
func TestChaosIsNoticed(t *testing.T) {
	for fault, traced := range map[string][]string{
		"claims":  {" twice, 0 lost\n", "ran 2 times", "tells: started", "tells: lost"},
		"effects": {"\n0 twice, ", "is answered, and has not run"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			require.Positive(t, newChaos(t, &out, 1, "-plant", fault).run(2*time.Second))
			t.Log(out.String())
			for _, text := range traced {
				require.Contains(t, out.String(), text)
			}
			require.NotContains(t, out.String(), "\n0 twice, 0 lost\n")
		})
	}
}

// The spans of the service of chaos. Its clients give up before a frozen process is thawed.
const (
	chaosLease   = 2 * time.Second
	chaosTimeout = time.Second
	fault        = 3 * time.Second // at most
)

// chaos is a service in processes of its own, each with a link of its own to the store that they share.
// Abandoned runs are uncertain, so that no operation may run a second time.
type chaos struct {
	*trial
	out       io.Writer
	random    *rand.Rand
	program   string
	args      []string
	url       string // of the store
	outages   []outage
	processes [3]atomic.Pointer[process]
	links     [3]*backend.Proxy // nil: there is nothing to cut

	began    time.Time
	until    time.Time // no fault lasts longer
	asked    atomic.Int64
	replayed atomic.Int64

	mu        sync.Mutex
	all       []*process          // those that were killed, too
	ops       map[string]string   // operations, by the ids that their runs have
	receipts  map[string]string   // the answers
	uncertain map[string]bool     // operations without an answer, as it seems
	story     map[string][]moment // of each operation: what clients and handlers tell
	wrong     map[string]string   // what is wrong with operations
	struck    []moment            // the faults
	made      map[string]int      // how many, by target and kind
	under     map[string]bool     // which targets have not recovered yet
	striking  sync.WaitGroup
}

// moment is when something happened.
type moment struct {
	at        time.Time
	who, what string
}

func newChaos(t *testing.T, out io.Writer, seed uint64, args ...string) *chaos {
	name := fmt.Sprintf("chaos%08x", rand.Uint32()) // of the service: nothing of anybody else's is touched
	c := &chaos{trial: newTrial(t), out: out, random: rand.New(rand.NewPCG(seed, 0)), url: *chaosURL,
		ops: map[string]string{}, receipts: map[string]string{}, uncertain: map[string]bool{}, story: map[string][]moment{},
		wrong: map[string]string{}, made: map[string]int{}, under: map[string]bool{}}
	c.client.Timeout = chaosTimeout * 3 / 2
	c.while(func(string, uint64) {
		if time.Sleep(rand.N(100 * time.Millisecond)); rand.IntN(50) == 0 {
			time.Sleep(rand.N(2 * chaosLease))
		}
	})
	of := "your store"
	if c.url == "" {
		of = *chaosStore
		i := slices.IndexFunc(outageStores, func(s outageStore) bool { return s.flag == of })
		require.True(t, i >= 0, "no store is called %q", of)
		var fresh func(*testing.T) string
		fresh, c.outages = outageStores[i].start(t)
		c.url = fresh(t)
	}
	if u, err := url.Parse(c.url); err == nil && u.Host != "" {
		port := map[string]string{"postgres": "5432", "postgresql": "5432", "mysql": "3306"}[u.Scheme]
		for i := range c.links {
			c.links[i] = backend.NewProxy(t, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port, "6379")))
		}
	}
	if !strings.HasPrefix(c.url, "redis") {
		t.Cleanup(func() {
			db, _, err := sqlstore.Open(c.url)
			require.NoError(t, err)
			defer db.Close()
			_, err = db.Exec("DROP TABLE " + name)
			assert.NoError(t, err)
		})
	}
	c.args = append([]string{"-name", name, "-uncertain", "-retain", (*chaosTime + 10*time.Minute).String(), "-lease", chaosLease.String(),
		"-timeout", chaosTimeout.String(), "-bank", bank(t, c.called)}, args...)
	c.program = theService(t)
	for i := range c.processes {
		require.NoError(t, c.start(i))
	}
	fmt.Fprintf(out, "seed %d: %d processes on %s\n", seed, len(c.processes), of)
	return c
}

// start starts a process.
func (c *chaos) start(i int) error {
	store := c.url
	if c.links[i] != nil {
		store = c.links[i].URL(store)
	}
	p, err := launch(c.trial, c.program, 0, append(slices.Clone(c.args), "-store", store, "-framework", frameworks[i])...)
	if err != nil {
		return err
	}
	p.name = fmt.Sprintf("process %d (%s)", i, frameworks[i])
	c.processes[i].Store(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, p)
	return nil
}

// called is called by the handlers.
func (c *chaos) called(step, op string, attempt uint64) {
	c.tell(op, "the effect", fmt.Sprint("attempt ", attempt))
	c.mu.Lock()
	c.ops[strings.TrimPrefix(step, "execute ")] = op
	c.mu.Unlock()
	c.execute(op, attempt)
	if n := c.ledger.of(op); n > 1 {
		c.fails(op, fmt.Sprintf("ran %d times", n))
	}
}

func (c *chaos) tell(op, who, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.story[op] = append(c.story[op], moment{time.Now(), who, what})
}

func (c *chaos) fails(op, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong[op] = what
}

// ask asks some process for an operation, once, and checks the answer.
func (c *chaos) ask(op string) (answer string) {
	p := c.processes[rand.IntN(len(c.processes))].Load()
	c.asked.Add(1)
	c.tell(op, p.name, "is asked")
	answer, receipt := p.request(op)
	c.tell(op, p.name, "answers "+answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch answer {
	case "201 replayed", "201":
		if answer != "201" {
			c.replayed.Add(1)
		}
		delete(c.uncertain, op)
		if c.ledger.of(op) == 0 {
			c.wrong[op] = "is answered, and has not run"
		} else if first := cmp.Or(c.receipts[op], receipt); first != receipt || !strings.HasPrefix(receipt, op+",") {
			c.wrong[op] = fmt.Sprintf("is answered with %q and %q", first, receipt)
		}
		c.receipts[op] = receipt
	case "409 uncertain":
		c.uncertain[op] = true
	case "none", "409 in_progress", "503 store_unavailable":
	default:
		c.wrong[op] = "is answered " + answer
	}
	return answer
}

// insist asks until there is an answer.
func (c *chaos) insist(op string, until time.Time) {
	for {
		switch c.ask(op) {
		case "none", "409 in_progress", "503 store_unavailable":
		default:
			return
		}
		if time.Now().After(until) {
			c.fails(op, "has no answer")
			return
		}
		time.Sleep(rand.N(150 * time.Millisecond))
	}
}

// shop is a client: it asks for one operation after the other, often twice at once, and for earlier ones.
func (c *chaos) shop(w int) {
	name := func(n int) string { return fmt.Sprint([]string{"op", "task"}[n%2], "-", w, "-", n) }
	for n := 0; time.Now().Before(c.until); n++ {
		var asking sync.WaitGroup
		for range 1 + rand.IntN(3) {
			asking.Go(func() { c.insist(name(n), c.until.Add(patience)) })
		}
		asking.Wait()
		c.ask(name(max(0, n-rand.IntN(20))))
		time.Sleep(rand.N(100 * time.Millisecond))
	}
}

// strike is a fault that can be made. A target has one at a time.
type strike struct {
	target, what string
	begin        func() (end func())
}

// strikes returns the faults of each target.
func (c *chaos) strikes() (all [][]strike) {
	for i := range c.processes {
		process, link := fmt.Sprint("process ", i), fmt.Sprint("link ", i)
		all = append(all, []strike{{process, "killed", func() func() {
			c.processes[i].Load().kill()
			return func() { c.restart(i, link) }
		}}, {process, "frozen", func() func() {
			p := c.processes[i].Load()
			p.freeze()
			return p.thaw
		}}})
		if l := c.links[i]; l != nil {
			all = append(all, []strike{
				{link, "cut", func() func() { l.Cut(); return l.Restore }},
				{link, "stalled", func() func() { l.Stall(); return l.Resume }},
				{link, "slow", func() func() { l.Delay(chaosTimeout / 3); return func() { l.Delay(0) } }},
				{link, "losing a request", func() func() { l.CutBefore(nil); return nothing }},
				{link, "losing an answer", func() func() { l.CutAfter(nil); return nothing }},
			})
		}
	}
	var store []strike
	for _, o := range c.outages {
		store = append(store, strike{"store", o.name, func() func() { return o.begin(c.t, c.url) }})
	}
	if store != nil {
		all = append(all, store)
	}
	return all
}

// restart starts a process that was killed, once it can reach the store.
func (c *chaos) restart(i int, link string) {
	for {
		err := io.ErrNoProgress
		if !c.busy(link) && !c.busy("store") {
			err = c.start(i)
		}
		if err == nil {
			return
		}
		require.True(c.t, time.Now().Before(c.until.Add(patience)), err)
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *chaos) busy(target string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.under[target]
}

// make makes a fault that lasts for a while.
func (c *chaos) make(s strike, lasts time.Duration) {
	c.mu.Lock()
	c.struck = append(c.struck, moment{time.Now(), s.target, "is struck: " + s.what})
	c.made[strings.TrimRight(s.target, " 0123456789")+" "+s.what]++
	c.under[s.target] = true
	c.mu.Unlock()
	c.striking.Go(func() {
		end := s.begin()
		time.Sleep(min(lasts, time.Until(c.until)))
		end()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.struck = append(c.struck, moment{time.Now(), s.target, "has recovered"})
		delete(c.under, s.target)
	})
}

// run makes faults for a while, waits until everybody has an answer, and reports. It returns how many operations are wrong.
func (c *chaos) run(length time.Duration) (wrong int) {
	c.began = time.Now()
	c.until = c.began.Add(length)
	var shopping sync.WaitGroup
	for w := range 16 {
		shopping.Go(func() { c.shop(w) })
	}
	all := c.strikes()
	for progress := c.began; time.Now().Before(c.until); time.Sleep(time.Duration(c.random.Int64N(int64(fault / 2)))) {
		target := all[c.random.IntN(len(all))]
		if s := target[c.random.IntN(len(target))]; !c.busy(s.target) {
			c.make(s, time.Duration(c.random.Int64N(int64(fault))))
		}
		if time.Since(progress) > 10*time.Second {
			progress = time.Now()
			fmt.Fprintf(c.out, "%v: %s\n", time.Since(c.began).Round(time.Second), c.count())
		}
	}
	c.striking.Wait()
	shopping.Wait()
	time.Sleep(chaosLease) // of those who were killed at last
	c.again()
	return c.report()
}

// again asks once more for what is uncertain, and for others.
func (c *chaos) again() {
	ops := slices.AppendSeq(slices.Collect(maps.Keys(c.uncertain)), maps.Keys(c.receipts))
	ops = ops[:min(len(ops), len(c.uncertain)+10_000)]
	work := make(chan string)
	var asking sync.WaitGroup
	for range 16 {
		asking.Go(func() {
			for op := range work {
				c.insist(op, time.Now().Add(patience))
			}
		})
	}
	for _, op := range ops {
		work <- op
	}
	close(work)
	asking.Wait()
}

// count says in a line what has happened so far.
func (c *chaos) count() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	unknown := 0
	for op := range c.uncertain {
		unknown += min(1, c.ledger.of(op))
	}
	var faults []string
	for _, what := range slices.Sorted(maps.Keys(c.made)) {
		faults = append(faults, fmt.Sprint(what, " ", c.made[what]))
	}
	return fmt.Sprintf("%d operations, %d duplicates sent, %d answers replayed, %d uncertain (%d with an effect)\n  %s", len(c.story),
		c.asked.Load()-int64(len(c.story)), c.replayed.Load(), len(c.uncertain), unknown, strings.Join(faults, ", "))
}

// report prints what has happened, and the first operations that are wrong. It returns how many are.
func (c *chaos) report() int {
	fmt.Fprintln(c.out, c.count())
	twice, lost := 0, 0
	for op := range c.story {
		switch n := c.ledger.of(op); {
		case n > 1:
			twice++
		case n == 0 && c.receipts[op] != "":
			lost++
		}
	}
	ops := slices.Sorted(maps.Keys(c.wrong))
	for _, op := range ops[:min(len(ops), 3)] {
		fmt.Fprintf(c.out, "\n%s %s:\n%s", op, c.wrong[op], c.trace(op))
	}
	fmt.Fprintf(c.out, "\n%d twice, %d lost", twice, lost)
	if others := len(ops) - twice - lost; others > 0 {
		fmt.Fprintf(c.out, ", %d otherwise wrong", others)
	}
	fmt.Fprintln(c.out)
	if len(c.receipts) == 0 {
		fmt.Fprintln(c.out, "and nothing was answered")
		return 1
	}
	return len(ops)
}

// trace is what has happened to an operation, and what was struck meanwhile.
func (c *chaos) trace(op string) string {
	moments := slices.Clone(c.story[op])
	for _, p := range c.all {
		p.mu.Lock()
		for _, e := range p.events {
			if c.ops[e.ID] == op {
				moments = append(moments, moment{e.at, p.name, "tells: " + e.Kind.String()})
			}
		}
		p.mu.Unlock()
	}
	byTime := func(a, b moment) int { return a.at.Compare(b.at) }
	first, last := slices.MinFunc(moments, byTime).at, slices.MaxFunc(moments, byTime).at
	for _, m := range c.struck {
		if m.at.After(first.Add(-fault)) && m.at.Before(last) {
			moments = append(moments, m)
		}
	}
	slices.SortStableFunc(moments, byTime)
	var text strings.Builder
	for _, m := range moments {
		fmt.Fprintf(&text, "%10.3f s  %s %s\n", m.at.Sub(c.began).Seconds(), m.who, m.what)
	}
	return text.String()
}
