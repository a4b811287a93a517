package adapter

import "cmp"

// Finisher settles the runs of one request whose response is made outside the guard, by a
// middleware that renders errors. An adapter's Finish puts one into the request, where the
// exchanges find it; see [Deferrer]. The zero Finisher is ready for use. It must not be used
// concurrently.
type Finisher struct{ deferred []deferred }

type deferred struct {
	run     Pending
	capture func(returned bool) *Capture
}

// Defer takes over a pending run. Finish calls capture once, for what was answered in the end. If
// returned is false, the chain of handlers has panicked: capture then drops what it has held back,
// and returns nil.
func (f *Finisher) Defer(run Pending, capture func(returned bool) *Capture) {
	f.deferred = append(f.deferred, deferred{run, capture})
}

// Deferred reports whether there is a run to settle.
func (f *Finisher) Deferred() bool { return len(f.deferred) > 0 }

// Finish settles the runs, the innermost guard's first, and delivers their answers. returned is
// false if the chain of handlers has panicked. The error is the first one of a delivery. A second
// call does nothing.
func (f *Finisher) Finish(returned bool) (err error) {
	runs := f.deferred
	f.deferred = nil
	for _, d := range runs {
		err = cmp.Or(err, d.run.Finish(d.capture(returned)))
	}
	return err
}
