// Package retry sends a request until its answer stands. sign.Transport and idemclient.Transport share it.
package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Verdict says what a try has brought.
type Verdict uint8

const (
	Final   Verdict = iota // what stands: an answer, or an error that another try would bring, too
	Again                  // what another try may change
	Running                // the operation is running, and has to be waited for; this counts as no try
)

// Try is one try: its answer, or else its error.
type Try struct {
	Response *http.Response
	Err      error
	Verdict  Verdict
	// Apart is how much later the next try has to begin.
	Apart time.Duration
}

// Why says why there is no further try.
type Why uint8

const (
	goOn     Why = iota
	Stands       // the verdict is Final, or the context has ended during the last try and brought its error
	Ended        // the context has ended since
	NoTries      // there were MaxTries, or the request can be sent only once
	TooLong      // the server asks for a pause that is longer than MaxWait
	NoTime       // the context's deadline comes before the next try
	NoBudget     // others have used up what may be sent
	Expired      // the request must not be sent any more
)

// Policy says how often a request is sent, and when.
type Policy struct {
	// MaxTries is how many times it is sent at most, without those whose verdict is Running. One: once, whatever the verdict.
	MaxTries int
	// MaxWait is the longest pause.
	MaxWait time.Duration
}

// Request is what is sent.
type Request interface {
	// Send makes a try.
	Send() Try
	// Reserve returns how long the next try has to wait for its turn, and false if that is longer than within.
	Reserve(within time.Duration) (time.Duration, bool)
	// IsExpired reports whether the request must not be sent any more after a pause.
	IsExpired(pause time.Duration) bool
	// Observe is called after each try. The pause is zero after the last one.
	Observe(try Try, pause time.Duration)
}

// Do sends r until its answer stands, or there can be no further try, and returns the last try. Unless the reason is Ended
// or Expired, its response is as Send has returned it; else its body is closed, and what was read of it is there.
func (p Policy) Do(ctx context.Context, r Request) (Try, Why) {
	for n, counted := 0, 0; ; n++ {
		try := r.Send()
		if try.Verdict == Again {
			counted++
		}
		pause, why := p.next(ctx, r, try, n, counted)
		r.Observe(try, pause)
		if why != goOn && why != Ended {
			return try, why
		}
		Detach(try.Response)
		if why == Ended || !sleep(ctx, pause) {
			return try, Ended
		}
		if r.IsExpired(0) { // a machine may have slept longer
			return try, Expired
		}
	}
}

// next returns the pause before the next try, or why there is none.
func (p Policy) next(ctx context.Context, r Request, try Try, n, counted int) (time.Duration, Why) {
	ended := ctx.Err() != nil
	if try.Verdict == Final || ended && try.Err != nil { // the error is what the context's end has brought
		return 0, Stands
	}
	if ended {
		return 0, Ended
	}
	if counted >= p.MaxTries || p.MaxTries == 1 {
		return 0, NoTries
	}
	within := p.MaxWait
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)-1) // at the deadline there is no time for a try
	}
	pause := p.pause(try, n, within)
	switch {
	case pause > p.MaxWait:
		return 0, TooLong
	case pause > within:
		return 0, NoTime
	case r.IsExpired(pause):
		return 0, Expired
	}
	if try.Verdict == Again {
		turn, ok := r.Reserve(within)
		if !ok {
			return 0, NoBudget
		}
		pause = max(pause, turn)
	}
	return pause, goOn
}

const (
	firstPause = 100 * time.Millisecond
	doublings  = 6 // up to 6.4 s
)

// pause returns what Retry-After asks for and a little more, but for that little not more than within; or else a random pause
// that grows with n.
func (p Policy) pause(try Try, n int, within time.Duration) time.Duration {
	grown := firstPause << min(n, doublings)
	pause := min(grown/2+rand.N(grown), p.MaxWait)
	if try.Response != nil {
		if asked := After(try.Response); asked > 0 {
			pause = asked
			if more := min(asked/4, grown, within-asked); more > 0 {
				pause += rand.N(more) // those who were told the same do not come at the same moment
			}
		}
	}
	return max(pause, try.Apart)
}

// IsTransient reports whether a server that has answered with status may answer otherwise soon.
func IsTransient(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// IsSafe reports whether a method asks for nothing to be done (RFC 9110, section 9.2.1; RFC 10008 for QUERY).
func IsSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY":
		return true
	}
	return false
}

// Check returns an error if net/http can't send r, so that no try would help. It does not read the body.
func Check(r *http.Request) error {
	switch {
	case r.Method != "" && !isToken(r.Method):
		return fmt.Errorf("%q is no method", r.Method)
	case strings.ContainsFunc(r.URL.Opaque, isControl) || strings.ContainsFunc(r.URL.RawQuery, isControl):
		return errors.New("the URL has a control character")
	case r.Body == nil && r.ContentLength != 0:
		return fmt.Errorf("there is no body, but ContentLength is %d", r.ContentLength)
	}
	for _, fields := range []http.Header{r.Header, r.Trailer} {
		for name, values := range fields {
			if !isToken(name) {
				return fmt.Errorf("%q is no name of a header field", name)
			}
			for _, value := range values {
				if strings.ContainsFunc(value, func(c rune) bool { return c != '\t' && isControl(c) }) {
					return fmt.Errorf("the value of %s has a control character", name) // it may be a secret
				}
			}
		}
	}
	return nil
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// isControl reports whether c is a control character.
func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// After parses Retry-After (RFC 9110, section 10.2.3): seconds, or a date. Zero: there is none, it is malformed, or it is past.
func After(resp *http.Response) time.Duration {
	field := resp.Header.Get("Retry-After")
	switch seconds, err := strconv.ParseUint(field, 10, 31); {
	case err == nil:
		return time.Duration(seconds) * time.Second
	case errors.Is(err, strconv.ErrRange):
		return math.MaxInt64
	}
	until, _ := Until(resp, field)
	return max(until, 0)
}

// Until returns how long after the response date is, by the clock of the server if it tells its Date, and false if it is no date.
func Until(resp *http.Response, date string) (time.Duration, bool) {
	if date == "" {
		return 0, false
	}
	at, err := http.ParseTime(date)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return at.Sub(now), true
}

const (
	// maxDrained is how many bytes of an unused response are read, so that its connection can serve the next try.
	maxDrained = 64 << 10
	// maxDraining is how long that may take.
	maxDraining = 50 * time.Millisecond
)

// Detach reads and closes the body of a response, so that its connection can be used again. It stops after a short time. What
// it has read is the response's body from now on. A nil response is none.
func Detach(resp *http.Response) {
	if resp == nil || resp.Body == nil {
		return
	}
	var read bytes.Buffer
	body := resp.Body
	timer := time.AfterFunc(maxDraining, func() { body.Close() })
	_, _ = io.CopyN(&read, body, maxDrained)
	timer.Stop()
	body.Close()
	resp.Body = io.NopCloser(&read)
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Outer is what somebody who retries a request tells those who only send it, or are redirected by its answer.
type Outer struct {
	// Key is the Idempotency-Key. Empty: there is none.
	Key string
	// First is when the key was first sent, and Lifetime how long after that it may be sent.
	First    time.Time
	Lifetime time.Duration
	// Apart and Fault are set by those who only send, for each try: see [Try.Apart]; and their error, if another try would
	// bring it, too.
	Apart time.Duration
	Fault error
}

type outerKey struct{}

// NewContext returns a context for the tries of a request.
func NewContext(ctx context.Context, o *Outer) context.Context {
	return context.WithValue(ctx, outerKey{}, o)
}

// FromContext returns who retries the request of ctx. Nil: nobody.
func FromContext(ctx context.Context) *Outer {
	o, _ := ctx.Value(outerKey{}).(*Outer)
	return o
}
