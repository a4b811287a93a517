package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

// DefaultConnections is how many connections a plan has that does not say so.
const DefaultConnections = 64

// grace is for how long an open loop may go on beyond its end, until what was due is answered.
const grace = 30 * time.Second

// Plan says what is sent, where to, and for how long.
type Plan struct {
	// Services are what is put under load; the connections are dealt out to them in turn. All
	// of them are behind the same store.
	Services []*Service

	// Bare says that nothing guards the services, so that each request is carried out.
	Bare bool

	// Connections is how many connections there are. Zero: DefaultConnections.
	Connections int

	// Warmup is how long requests are sent before anything is measured. Their outcome counts
	// nevertheless.
	Warmup time.Duration

	// Duration is how long is measured, after the warm-up.
	Duration time.Duration

	// Rate is how many requests are due in a second, in an open loop. Zero: a closed loop.
	Rate float64

	// Duplicates is the share of requests, 0 to 1, that ask again for one of the latest 1024
	// operations, done or running. Not 1: nothing would ever be asked for first.
	Duplicates float64

	// Key is what keys begin with. Runs against the same store need different ones, for their
	// operations are numbered from zero.
	Key string

	// Seed decides which requests are duplicates.
	Seed uint64
}

// Result is what a run has measured.
type Result struct {
	// Requests is how many requests were answered while it was measured, and Elapsed how long
	// that took: in an open loop, until the last one that was due was answered.
	Requests int
	Elapsed  time.Duration

	// Latency is how long answers took: from sending in a closed loop, from the time at which
	// the request was due in an open one.
	Latency Histogram

	// Late is by how much the generator of an open loop woke late, by no fault of the service.
	// It is part of Latency.
	Late Histogram

	// Operations is how many operations were asked for, First, Replayed and Conflicts how many
	// answers were of which kind, all with the warm-up.
	Operations, First, Replayed, Conflicts int
}

// Throughput returns answers a second.
func (r *Result) Throughput() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Requests) / r.Elapsed.Seconds()
}

// Run carries out the plan. It fails with an [OutcomeError] if a service has not kept what it
// promises, and with any other error if it could not be reached to the end. When ctx ends, so
// does the run, with an error. Nothing is left behind.
func Run(ctx context.Context, p Plan) (*Result, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.Warmup+p.Duration+grace, errors.New("the services could not keep up"))
	defer cancel()

	seed := maphash.MakeSeed()
	senders := make([]func(uint64) (answer, error), 0, p.Connections)
	var conns []*conn
	defer func() {
		for _, c := range conns {
			_ = c.net.Close() // it may be closed already
		}
	}()
	for i := range p.Connections {
		c, err := dial(ctx, p.Services[i%len(p.Services)].Addr(), p.Key, seed)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
		senders = append(senders, c.send)
	}
	// A read under way ends only with its connection.
	stop := context.AfterFunc(ctx, func() {
		for _, c := range conns {
			_ = c.net.Close()
		}
	})
	defer stop()

	ledger := newLedger(p.Duplicates, p.Bare, p.Seed)
	result, err := p.send(ctx, ledger, senders, sleep)
	if err != nil {
		return nil, err
	}
	executions := make([]map[uint64]uint64, len(p.Services))
	for i, s := range p.Services {
		if executions[i], err = s.executions(ctx); err != nil {
			return nil, err
		}
	}
	result.Operations, result.First = len(ledger.operations), ledger.first
	result.Replayed, result.Conflicts = ledger.replayed, ledger.conflicts
	return result, ledger.settle(executions)
}

// check fills in defaults and reports what makes no sense.
func (p *Plan) check() error {
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("load: "+format, args...))
		}
	}
	if p.Connections == 0 {
		p.Connections = DefaultConnections
	}
	refuse(len(p.Services) == 0, "no services")
	refuse(p.Connections < 0, "%d connections", p.Connections)
	refuse(p.Duration <= 0, "a duration of %v", p.Duration)
	refuse(p.Warmup < 0, "a warm-up of %v", p.Warmup)
	refuse(!(p.Rate >= 0) || math.IsInf(p.Rate, 1), "%v requests a second", p.Rate)
	refuse(p.Rate > 0 && p.Rate*p.Duration.Seconds() < 1, "%v requests a second for %v are none", p.Rate, p.Duration)
	refuse(!(p.Duplicates >= 0 && p.Duplicates < 1), "a share of %v of duplicates", p.Duplicates)
	refuse(strings.ContainsFunc(p.Key, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == ',' }), "a key that begins with %q", p.Key)
	return errors.Join(faults...)
}

// send runs the loop over connections, and returns what it has measured. An open loop waits with
// sleep.
func (p *Plan) send(ctx context.Context, l *ledger, senders []func(uint64) (answer, error), sleep func(time.Duration)) (*Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	start := time.Now()
	from, until := start.Add(p.Warmup), start.Add(p.Warmup+p.Duration)
	var result Result
	var tickets chan time.Time
	var wg sync.WaitGroup
	if p.Rate > 0 {
		tickets = make(chan time.Time)
		s := schedule{start: start, rate: p.Rate}
		wg.Go(func() { pace(ctx, s, s.requests(p.Warmup+p.Duration), tickets, sleep, &result.Late) })
	}
	// due returns when the next request is due; for a closed loop that is now.
	due := func() (time.Time, bool) {
		if tickets != nil {
			t, ok := <-tickets
			return t, ok
		}
		now := time.Now()
		return now, now.Before(until) && ctx.Err() == nil
	}

	latencies := make([]Histogram, len(senders))
	last := make([]time.Time, len(senders)) // when the last answer came
	for i, send := range senders {
		wg.Go(func() {
			for {
				sent, ok := due()
				if !ok {
					return
				}
				operation := l.next()
				a, err := send(operation)
				if err != nil {
					cancel(fmt.Errorf("operation %d: %w", operation, err))
					return
				}
				last[i] = time.Now()
				if !sent.Before(from) {
					latencies[i].Record(last[i].Sub(sent))
				}
				l.answered(operation, a)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	end := until
	for i := range latencies {
		result.Latency.Merge(&latencies[i])
		if last[i].After(end) {
			end = last[i]
		}
	}
	result.Requests = int(result.Latency.Count())
	result.Elapsed = end.Sub(from)
	return &result, nil
}

// executions asks a service how often it has carried out each operation.
func (s *Service) executions(ctx context.Context) (map[uint64]uint64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/executions", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /executions: %s", resp.Status)
	}
	return readExecutions(resp.Body)
}

// readExecutions reads lines of an operation's number and how often it was carried out.
func readExecutions(r io.Reader) (map[uint64]uint64, error) {
	executions := map[uint64]uint64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var operation, n uint64
		if _, err := fmt.Sscanf(lines.Text(), "%d %d", &operation, &n); err != nil {
			return nil, fmt.Errorf("not a line of /executions: %q", lines.Text())
		}
		executions[operation] += n
	}
	return executions, lines.Err()
}
