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

	"github.com/idem-go/idem/core/store"
)

// Limiter is a limit that processes share: n at once, and then one each window/n, for each key. It
// implements core.Limiter. All methods are safe for concurrent use. The zero Limiter is not usable; make one
// with [NewLimiter] or [Store.NewLimiter]. It has nothing to close.
type Limiter struct {
	calls       *calls
	prefix      string
	timeout     time.Duration
	step, whole string // in what time one comes back, and a whole bucket, in µs
}

// LimiterOption changes how a [Limiter] works.
type LimiterOption func(*Limiter)

// LimiterPrefix sets what stands in front of the limiter's keys: what core.Config.Prefix is for records. The
// default, "idem:", is the same. At most 128 bytes, without blanks and control characters.
func LimiterPrefix(prefix string) LimiterOption { return func(l *Limiter) { l.prefix = prefix } }

// LimiterTimeout sets how long a call may take at most; the caller's context may end it earlier. It must be more
// than zero. The default is 2 s.
func LimiterTimeout(timeout time.Duration) LimiterOption {
	return func(l *Limiter) { l.timeout = timeout }
}

// NewLimiter returns a limiter that allows n in window for each key, on the server or servers of client, which it
// leaves to its owner and which must go to masters. Its client may be that of a [Store].
//
// Limiters of one name (and prefix) count together, in whatever processes they are; so each limit of a service
// has a name of its own. It has at most 64 bytes, without blanks, control characters and '#'.
//
// The errors name every fault: no client, no name, n or window not more than zero, an n for which more than 100
// years would pass until a bucket is full again. NewLimiter does not wait for the server.
func NewLimiter(client rueidis.Client, n int, window time.Duration, name string, options ...LimiterOption) (*Limiter, error) {
	return newLimiter(&calls{client: client}, n, window, name, options)
}

// NewLimiter returns a limiter on the store's client. When the store is closed, its calls fail. The rest is as for the
// function [NewLimiter].
func (s *Store) NewLimiter(n int, window time.Duration, name string, options ...LimiterOption) (*Limiter, error) {
	return newLimiter(&s.calls, n, window, name, options)
}

// longest is until when a bucket must be full again. Lua counts in floating point, which is exact up to 285 years
// in µs: 1970 is a part of that.
const longest = 100 * 365 * 24 * time.Hour

func newLimiter(calls *calls, n int, window time.Duration, name string, options []LimiterOption) (*Limiter, error) {
	l := &Limiter{calls: calls, prefix: "idem:", timeout: 2 * time.Second}
	for _, option := range options {
		option(l)
	}
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("redisstore: NewLimiter: "+format, args...))
		}
	}
	blank := func(r rune) bool { return r <= ' ' || r == 0x7f }
	fault(calls.client == nil, "there is no client")
	fault(n < 1, "n is %d; it must be more than zero", n)
	fault(window <= 0, "the window is %v; it must be more than zero", window)
	fault(name == "" || len(name) > 64 || strings.Contains(name, "#") || strings.ContainsFunc(name, blank),
		"the name is %q; it must have 1 to 64 bytes, without blanks, control characters and '#'", name)
	fault(len(l.prefix) > 128 || strings.ContainsFunc(l.prefix, blank),
		"the prefix is %q; it must have at most 128 bytes, without blanks and control characters", l.prefix)
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
	l.prefix += "L=" + name + "#"
	return l, nil
}

// up returns a divided by b, rounded up. Both are more than zero.
func up(a, b int64) int64 { return 1 + (a-1)/b }

// Allow implements core.Limiter. The error is that of the context or the limiter's timeout; store.ErrFull if the
// server has no room for another key; or what else keeps it from counting: it is unreachable, loading, a replica.
func (l *Limiter) Allow(ctx context.Context, key string) (wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	mark := store.NewOwner()
	do := command{script: limitScript, key: l.key(key), args: [3]string{l.step, l.whole, string(mark[:])}, n: 3}
	a, _, err := l.calls.run(ctx, do)
	return time.Duration(a.number) * time.Microsecond, err
}

// key is where what is known of a key is kept. It may be a secret, such as an API key, and of any length.
func (l *Limiter) key(key string) string {
	digest := sha256.Sum256([]byte(key))
	b := make([]byte, 0, len("L=#")+128+64+2*len(digest))
	b = append(b, l.prefix...)
	return string(hex.AppendEncode(b, digest[:]))
}
