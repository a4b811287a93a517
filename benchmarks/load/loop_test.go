package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stalling is a service that answers after a millisecond, but at one time nobody gets an answer
// until the stall is over. The time is that of a synctest bubble.
type stalling struct {
	start, from, until time.Time
}

func stall(from, until time.Duration) *stalling {
	start := time.Now()
	return &stalling{start, start.Add(from), start.Add(until)}
}

func (s *stalling) send(uint64) (answer, error) {
	if now := time.Now(); !now.Before(s.from) && now.Before(s.until) {
		time.Sleep(s.until.Sub(now))
	}
	time.Sleep(time.Millisecond)
	return answer{status: 201}, nil
}

func senders(n int, send func(uint64) (answer, error)) []func(uint64) (answer, error) {
	all := make([]func(uint64) (answer, error), n)
	for i := range all {
		all[i] = send
	}
	return all
}

func TestAnOpenLoopCountsTheWaitOfThoseWhoWouldHaveAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := stall(time.Second, 2*time.Second)
		p := Plan{Duration: 4 * time.Second, Rate: 100}
		r, err := p.send(t.Context(), newLedger(0, false, 1), senders(2, service.send), time.Sleep)
		require.NoError(t, err)
		require.Equal(t, 400, r.Requests)
		// 100 of 400 requests were due in the second of the stall, and waited for its end, from a
		// second down to nothing. Half of these, an eighth of all, waited for half a second.
		assert.Equal(t, 1001*time.Millisecond, r.Latency.Max())
		assert.InDelta(t, 0.5, r.Latency.Quantile(1-0.125).Seconds(), 0.06)
		assert.InDelta(t, time.Millisecond, r.Latency.Quantile(0.5), 1e4)
		assert.Zero(t, r.Late.Max(), "the generator was not late itself")
		assert.Equal(t, 4*time.Second, r.Elapsed)
	})
}

func TestAClosedLoopHidesTheSameStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := stall(time.Second, 2*time.Second)
		p := Plan{Duration: 4 * time.Second}
		r, err := p.send(t.Context(), newLedger(0, false, 1), senders(2, service.send), time.Sleep)
		require.NoError(t, err)
		assert.Equal(t, 1001*time.Millisecond, r.Latency.Max())
		assert.InDelta(t, time.Millisecond, r.Latency.Quantile(0.999), 1e4, "only one request a connection has met with it")
		assert.InDelta(t, 6000, r.Requests, 10)
	})
}

func TestAnOpenLoopIsAnsweredToTheLastThatWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 2 connections and 10 ms an answer: 200 a second. 300 are due.
		p := Plan{Duration: time.Second, Rate: 300}
		slow := func(uint64) (answer, error) { time.Sleep(10 * time.Millisecond); return answer{status: 201}, nil }
		r, err := p.send(t.Context(), newLedger(0, false, 1), senders(2, slow), time.Sleep)
		require.NoError(t, err)
		assert.Equal(t, 300, r.Requests)
		assert.InDelta(t, 1.5, r.Elapsed.Seconds(), 0.01)
		assert.InDelta(t, 200, r.Throughput(), 1)
		assert.InDelta(t, 0.5, r.Latency.Max().Seconds(), 0.02)
	})
}

func TestTheWarmUpIsNotMeasuredButCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := stall(0, 500*time.Millisecond)
		for _, rate := range []float64{0, 100} {
			l := newLedger(0, false, 1)
			p := Plan{Warmup: time.Second, Duration: time.Second, Rate: rate}
			service.from = time.Now()
			service.until = service.from.Add(500 * time.Millisecond)
			r, err := p.send(t.Context(), l, senders(1, service.send), time.Sleep)
			require.NoError(t, err)
			assert.InDelta(t, time.Millisecond, r.Latency.Max(), 1e4)
			assert.Greater(t, l.first, r.Requests)
			if rate > 0 {
				assert.Equal(t, 100, r.Requests)
				assert.Equal(t, 200, l.first)
			}
		}
	})
}

func TestPaceIsExactAndTellsWhenItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := schedule{start: start, rate: 3} // thirds of a second: no error may add up
		tickets := make(chan time.Time)
		var late Histogram
		go pace(t.Context(), s, 3001, tickets, func(d time.Duration) { time.Sleep(d + 7*time.Nanosecond) }, &late)
		n := 0
		for due := range tickets {
			assert.Equal(t, start.Add(time.Duration(n)*time.Second/3).Round(time.Microsecond), due.Round(time.Microsecond))
			assert.False(t, time.Now().Before(due))
			n++
		}
		assert.Equal(t, 3001, n)
		assert.Equal(t, start.Add(1000*time.Second), s.due(3000))
		assert.EqualValues(t, 3000, late.Count(), "the first one is due at once")
		assert.EqualValues(t, 7, late.Max())
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tickets := make(chan time.Time)
		go pace(ctx, schedule{start: time.Now(), rate: 1}, 1000, tickets, time.Sleep, new(Histogram))
		<-tickets
		cancel()
		synctest.Wait() // nobody takes the next one
		time.Sleep(time.Hour)
		n := 0
		for range tickets {
			n++
		}
		assert.LessOrEqual(t, n, 1)
	})
}

func TestARunEndsWithTheFirstBrokenConnection(t *testing.T) {
	broken := errors.New("broken")
	for _, rate := range []float64{0, 1000} {
		synctest.Test(t, func(t *testing.T) {
			p := Plan{Duration: time.Hour, Rate: rate}
			start := time.Now()
			_, err := p.send(t.Context(), newLedger(0, false, 1), senders(4, func(n uint64) (answer, error) {
				time.Sleep(time.Millisecond)
				if n == 10 {
					return answer{}, broken
				}
				return answer{status: 201}, nil
			}), time.Sleep)
			require.ErrorIs(t, err, broken)
			assert.Less(t, time.Since(start), time.Second)
		})
	}
}

func TestSleepIsNotShort(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, 50 * time.Microsecond, 3 * time.Millisecond} {
		began := time.Now()
		sleep(d)
		assert.GreaterOrEqual(t, time.Since(began), d)
	}
}
