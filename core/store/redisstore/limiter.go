package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// Limiter is a limit that processes share: for each key n calls at once, and then one in each window/n. It
// implements core.Limiter. All methods are safe for concurrent use. The zero Limiter is not usable; make one
// with [NewLimiter] or [Store.NewLimiter]. It needs no closing.
type Limiter struct {
	calls       *calls
	prefix      string
	timeout     time.Duration
	step, whole string // the time in which one call comes back, and that of a whole bucket, in µs
}

// LimiterOption changes how a [Limiter] works.
type LimiterOption func(*Limiter)

// LimiterTimeout sets how long a call takes at most; the caller's context may end it earlier. It must be more
// than zero. The default is 2 s.
func LimiterTimeout(timeout time.Duration) LimiterOption {
	return func(l *Limiter) { l.timeout = timeout }
}

// NewLimiter returns a limiter that allows n calls in window for each key, on the server or servers of client. The
// client remains the caller's, may be that of a [Store], and must send commands to masters.
//
// Limiters with the same service and name count together, in all processes. The service is that of core.Config:
// 1 to 64 letters, digits and '-'. Give each limit of a service a name of its own: 1 to 64 bytes, without blanks,
// control characters and '#'.
//
// The error names every fault: a nil client, a bad service or name, an n, window or timeout that is not more than
// zero, or a bucket that takes more than 100 years to fill. NewLimiter does not wait for the server.
func NewLimiter(client rueidis.Client, service string, n int, window time.Duration, name string, options ...LimiterOption) (*Limiter, error) {
	return newLimiter(&calls{client: inBatches(client)}, service, n, window, name, options)
}

// NewLimiter is the function [NewLimiter] with the store's client. The limiter's calls fail when the store is closed.
func (s *Store) NewLimiter(service string, n int, window time.Duration, name string, options ...LimiterOption) (*Limiter, error) {
	return newLimiter(&s.calls, service, n, window, name, options)
}

// longest is the longest time in which a bucket may fill. Lua counts in floating point, which is exact up to 285 years
// in µs since 1970.
const longest = 100 * 365 * 24 * time.Hour

func newLimiter(calls *calls, service string, n int, window time.Duration, name string, options []LimiterOption) (*Limiter, error) {
	l := &Limiter{calls: calls, timeout: 2 * time.Second}
	for _, option := range options {
		option(l)
	}
	prefix, ok := canon.ServicePrefix(service)
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("redisstore: NewLimiter: "+format, args...))
		}
	}
	blank := func(r rune) bool { return r <= ' ' || r == 0x7f }
	fault(calls.client == nil, "there is no client")
	fault(!ok, "the service is %q; it must have 1 to 64 letters (a-z, A-Z), digits and '-'", service)
	fault(n < 1, "n is %d; it must be more than zero", n)
	fault(window <= 0, "the window is %v; it must be more than zero", window)
	fault(name == "" || len(name) > 64 || strings.Contains(name, "#") || strings.ContainsFunc(name, blank),
		"the name is %q; it must have 1 to 64 bytes, without blanks, control characters and '#'", name)
	fault(l.timeout <= 0, "the timeout is %v; it must be more than zero", l.timeout)
	if n > 0 && window > 0 {
		// In whole microseconds, rounded up: what is allowed is never more than n in window.
		step := up(up(int64(window), int64(time.Microsecond)), int64(n))
		fault(int64(longest/time.Microsecond)/step < int64(n), "a bucket of %d in %v is full again in more than 100 years", n, window)
		l.step, l.whole = strconv.FormatInt(step, 10), strconv.FormatInt(step*int64(n), 10)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	l.prefix = prefix + "L=" + name + "#"
	return l, nil
}

// up returns a divided by b, rounded up. Both are more than zero.
func up(a, b int64) int64 { return 1 + (a-1)/b }

// Allow implements core.Limiter. The error is the context's, or context.DeadlineExceeded after the limiter's timeout;
// store.ErrFull if the server has no room for another key; or that of a server that can't count: it is unreachable,
// loading, or a replica.
func (l *Limiter) Allow(ctx context.Context, key string) (wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	mark := store.NewOwner()
	do := command{script: limitScript, key: l.key(key), args: [3]string{l.step, l.whole, string(mark[:])}, n: 3}
	a, _, err := l.calls.run(ctx, do)
	return time.Duration(a.number) * time.Microsecond, err
}

// key is the key in Redis. It holds a digest, for the limiter's key may be long, or a secret such as an API key.
func (l *Limiter) key(key string) string {
	digest := sha256.Sum256([]byte(key))
	b := make([]byte, 0, len("idem::L=#")+64+64+2*len(digest))
	b = append(b, l.prefix...)
	return string(hex.AppendEncode(b, digest[:]))
}
