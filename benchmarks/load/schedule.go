package load

import (
	"context"
	"time"
)

// schedule says when each request of an open loop is due: rate a second, evenly, from start.
// It is computed from the request's number, so that no error adds up and no stall moves what
// comes after it.
type schedule struct {
	start time.Time
	rate  float64 // requests a second, more than zero
}

// due returns when request i, from zero, is to be sent.
func (s schedule) due(i int) time.Time {
	return s.start.Add(time.Duration(float64(i) / s.rate * float64(time.Second)))
}

// requests returns how many requests are due within d of the start.
func (s schedule) requests(d time.Duration) int {
	return int(s.rate * d.Seconds())
}

// pace hands out the times at which n requests are due, each one not before its time, to
// whichever connection is free. When none is, a request waits, those behind it too, and all
// keep their times. It closes tickets at the end, or when ctx ends. In late it records by how
// much it was late itself, by no fault of the service.
func pace(ctx context.Context, s schedule, n int, tickets chan<- time.Time, sleep func(time.Duration), late *Histogram) {
	defer close(tickets)
	for i := range n {
		due := s.due(i)
		if wait := time.Until(due); wait > 0 {
			sleep(wait)
			late.Record(time.Since(due))
		}
		select {
		case tickets <- due:
		case <-ctx.Done():
			return
		}
	}
}
