package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/idem-go/idem/benchmarks/load"
)

// cell is one run of the load generator, or what its row is about.
type cell struct {
	framework  string
	store      string // a key of storeNames
	open       bool   // an open loop
	duplicates string // percent
}

// storeNames say what services are like.
var storeNames = map[string]string{
	"bare":   "no guard",
	"memory": "store in the process",
	"redis2": "two processes on one Redis",
}

var shares = map[string]float64{"0": 0, "10": 0.1, "90": 0.9}

// loadName returns the name of a cell's row.
func loadName(framework, store string, open bool, duplicates string) string {
	loop := "closed"
	if open {
		loop = "open"
	}
	return "Load/" + framework + "/" + store + "/" + loop + "/duplicates=" + duplicates
}

func (c cell) name() string { return loadName(c.framework, c.store, c.open, c.duplicates) }

// cellOf returns what a row of the load is about, and whether it is one.
func cellOf(r *row) (cell, bool) {
	path := r.path()
	if len(path) != 5 || path[0] != "Load" {
		return cell{}, false
	}
	c := cell{path[1], path[2], path[3] == "open", strings.TrimPrefix(path[4], "duplicates=")}
	return c, c.name() == r.name
}

// cells are what is measured of frameworks: of each the closed loop without and with a guard,
// of the first one everything.
func cells(frameworks []string, redis bool) []cell {
	var cs []cell
	for i, fw := range frameworks {
		for _, store := range []string{"bare", "memory", "redis2"} {
			if store == "redis2" && !redis {
				continue
			}
			for _, duplicates := range []string{"0", "10", "90"} {
				if store == "bare" && duplicates != "0" {
					continue // a duplicate is a request like any other
				}
				cs = append(cs, cell{fw, store, false, duplicates})
				if i == 0 && store != "bare" {
					cs = append(cs, cell{fw, store, true, duplicates})
				}
			}
		}
	}
	return cs
}

// generator runs cells.
type generator struct {
	program     string // the service
	redis       string // URL
	connections int
	warmup      time.Duration
	duration    time.Duration
	// throughput is what closed loops have reached, by the cell's name.
	throughput map[string]float64
}

// fit makes n cells take no longer than limit, by measuring for a shorter time, but not for none.
func (g *generator) fit(n int, limit time.Duration) {
	const startAndStop = 300 * time.Millisecond
	each := limit / time.Duration(max(n, 1))
	g.duration = max(min(g.duration, each-g.warmup-startAndStop), 200*time.Millisecond)
}

// run measures a cell and returns it as a line of results. The closed loop of the same cell must
// have run before an open one.
func (g *generator) run(ctx context.Context, c cell) (line string, err error) {
	key := strings.ToLower(rand.Text()[:12]) + "-"
	args := []string{"-framework", c.framework, "-prefix", "load:" + key, "-retain", (g.duration + g.warmup + time.Minute).String()}
	processes := 1
	switch c.store {
	case "bare":
		args = append(args, "-guard", "none")
	case "redis2":
		args = append(args, "-store", g.redis)
		processes = 2
	}
	plan := load.Plan{
		Bare: c.store == "bare", Connections: g.connections, Warmup: g.warmup, Duration: g.duration,
		Duplicates: shares[c.duplicates], Key: key, Seed: 1,
	}
	if c.open {
		closed := g.throughput[loadName(c.framework, c.store, false, c.duplicates)]
		plan.Rate = math.Max(100, math.Floor(closed/2/100)*100)
	}
	defer func() {
		for _, s := range plan.Services {
			err = errors.Join(err, s.Stop())
		}
		if ctx.Err() != nil { // whatever failed, that is why
			line, err = "", context.Cause(ctx)
		}
	}()
	for range processes {
		s, err := load.Start(ctx, g.program, args...)
		if err != nil {
			return "", err
		}
		plan.Services = append(plan.Services, s)
	}
	r, err := load.Run(ctx, plan)
	if err != nil {
		return "", fmt.Errorf("%s: %w", c.name(), err)
	}
	if !c.open {
		g.throughput[c.name()] = r.Throughput()
	}
	return lineOf(c, plan, r), nil
}

// lineOf writes a result as a line of the Go benchmark data format.
func lineOf(c cell, p load.Plan, r *load.Result) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "Benchmark%s", c.name())
	if n := runtime.GOMAXPROCS(0); n > 1 { // as go test does
		fmt.Fprintf(b, "-%d", n)
	}
	fmt.Fprintf(b, " %d %.1f req/s", r.Requests, r.Throughput())
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}} {
		fmt.Fprintf(b, " %d %s-ns", r.Latency.Quantile(q.q), q.name)
	}
	fmt.Fprintf(b, " %d max-ns %d operations %d replayed %d conflicts", r.Latency.Max(), r.Operations, r.Replayed, r.Conflicts)
	if c.open {
		fmt.Fprintf(b, " %.0f due/s %d late-p99-ns", p.Rate, r.Late.Quantile(0.99))
	}
	return b.String()
}

// withoutPassword is how a URL may be shown.
func withoutPassword(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
