package rpckit

import (
	"context"
	"crypto/rand"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"time"
)

const (
	tries        = 5
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	maxPushback  = time.Minute
)

// NewKey makes a key for one logical call: 130 random bits, as a token.
func NewKey() string { return rand.Text() }

// Retry calls try until its code is none of codes, five times at most. try also returns the values of [Pushback] with which the
// server has answered. Of these, one says how many milliseconds to wait; a negative one, one that is no number, one of more than a
// minute, or several end it. Without any, the wait grows from 0.1 s to 5 s. It ends early if ctx would end before the next try.
func Retry(ctx context.Context, codes []uint32, try func() (code uint32, pushback []string)) {
	for n := range tries {
		code, pushback := try()
		wait, again := backoff(n, pushback)
		deadline, limited := ctx.Deadline()
		if !slices.Contains(codes, code) || !again || n == tries-1 || limited && time.Until(deadline) <= wait {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// backoff returns the wait after the try n, from 0.
func backoff(n int, pushback []string) (time.Duration, bool) {
	switch len(pushback) {
	case 0:
		d := min(firstBackoff<<n, lastBackoff)
		return d/2 + mathrand.N(d), true
	case 1:
		ms, err := strconv.ParseUint(pushback[0], 10, 32)
		d := time.Duration(min(ms, math.MaxInt32)) * time.Millisecond
		return d, err == nil && d <= maxPushback
	}
	return 0, false
}
