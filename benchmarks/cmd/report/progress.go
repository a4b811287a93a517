package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress tells on one line what runs, how long everything has taken, and how long it will
// still take, by an estimate.
type progress struct {
	out      io.Writer
	terminal bool // the line is written over; else there is one now and then
	began    time.Time
	budget   time.Duration
	now      func() time.Time

	// planned is how long everything will take in all. It is the budget until that is known
	// better.
	planned time.Duration
	last    time.Time // when something was written
	width   int       // of the line that stands
}

func newProgress(out io.Writer, terminal bool, budget time.Duration, now func() time.Time) *progress {
	return &progress{out: out, terminal: terminal, began: now(), budget: budget, now: now, planned: budget}
}

// elapsed returns how long everything has taken.
func (p *progress) elapsed() time.Duration { return p.now().Sub(p.began) }

// plan says how long everything will still take.
func (p *progress) plan(left time.Duration) {
	p.planned = min(p.elapsed()+left, max(p.budget, p.elapsed()))
}

// quiet is how long nothing is written for where lines are not written over.
const quiet = 10 * time.Second

// show says what runs.
func (p *progress) show(what string) {
	now := p.now()
	pause := quiet
	if p.terminal {
		pause = 100 * time.Millisecond
	}
	if !p.last.IsZero() && now.Sub(p.last) < pause {
		return
	}
	p.last = now
	line := p.line(what)
	if !p.terminal {
		fmt.Fprintln(p.out, line)
		return
	}
	fmt.Fprint(p.out, "\r", line, strings.Repeat(" ", max(p.width-len(line), 0)))
	p.width = len(line)
}

func (p *progress) line(what string) string {
	gone := p.elapsed()
	left := max(p.planned-gone, 0)
	share := 100
	if p.planned > 0 {
		share = min(int(100*gone/p.planned), 100)
	}
	const limit = 60
	if r := []rune(what); len(r) > limit {
		what = string(r[:limit-3]) + "..."
	}
	return fmt.Sprintf("%3d %%  %s gone, about %s left  %s", share, minutes(gone), minutes(left), what)
}

// say writes a line that stays.
func (p *progress) say(format string, args ...any) {
	if p.terminal && p.width > 0 {
		fmt.Fprint(p.out, "\r", strings.Repeat(" ", p.width), "\r")
		p.width = 0
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

func minutes(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
