package sign

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/sign/internal/form"
)

// Transport is an [http.RoundTripper] that signs each request, and tries again what may be
// tried again: each attempt with a new timestamp, nonce and signature, and with the same
// Idempotency-Key, so that the operation happens once.
//
//	client := &http.Client{Transport: &sign.Transport{Key: key}}
//
// A request may be tried again if its method is idempotent (RFC 9110, section 9.2.2) or it has
// an Idempotency-Key (see OperationHeader). It is, after an error of the connection and after 429, 502, 503 and 504,
// and after 409 and 425 with a Retry-After: it waits for as long as the server asks for by
// Retry-After, else with a growing, random pause. The last attempt's response or error is the
// client's, whatever it is.
//
// A redirect to another host or scheme is an error: who is named there would get a message signed for
// what they like. With [RequestOptions].Host, it would even be good for the first one.
//
// The body is held in memory, all of it: a reader that stalls holds the request up, whatever its context
// says. The fields must not be changed once the transport is in use; it is
// then safe for concurrent use.
type Transport struct {
	// Key signs.
	Key *Key
	// Options say how. Nil: scheme v1.
	Options *RequestOptions
	// Base sends the requests. Nil: [http.DefaultTransport].
	Base http.RoundTripper
	// MaxAttempts is how many times a request is sent at most. Zero: 3. One: never again.
	MaxAttempts int
	// OperationHeader is the name of the header field that says which operation a request is about, so
	// that it may be tried again. Empty: Idempotency-Key. For [StandardWebhooks] it is
	// Webhook-Id.
	OperationHeader string
	// MaxWait is the longest pause between two attempts. A server that asks for a longer one
	// gets no other attempt: the client gets its answer. Zero: 30 s. With [StandardWebhooks], whose
	// attempts are at least a second apart, less than that means none.
	MaxWait time.Duration
}

const (
	defaultAttempts = 3
	defaultMaxWait  = 30 * time.Second
	firstPause      = 100 * time.Millisecond
	// maxDrained is how much of a response that is not used is read, to use its connection again.
	maxDrained = 64 << 10
	// maxDraining is how long that may take.
	maxDraining = 50 * time.Millisecond
)

// RoundTrip implements [http.RoundTripper]. It does not change r, and closes its body.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readAll(r)
	if err != nil {
		return nil, err
	}
	if leads(r) {
		return nil, errRedirected
	}
	base, attempts, maxWait := t.Base, t.MaxAttempts, t.MaxWait
	if base == nil {
		base = http.DefaultTransport
	}
	setDefault(&attempts, defaultAttempts)
	setDefault(&maxWait, defaultMaxWait)
	if !t.isRepeatable(r) {
		attempts = 1
	}
	for n := 1; ; n++ {
		attempt := r.Clone(r.Context())
		if err := signRequest(attempt, body, t.Key, t.Options); err != nil {
			return nil, err
		}
		resp, err := base.RoundTrip(attempt)
		if n >= attempts {
			return resp, err
		}
		pause, again := nextPause(r.Context(), resp, err, n)
		if t.bySecond() {
			pause = max(pause, time.Second)
		}
		if !again || pause > maxWait || !hasTime(r.Context(), pause) {
			return resp, err
		}
		if resp != nil {
			drain(resp.Body)
		}
		if !sleep(r.Context(), pause) {
			return nil, context.Cause(r.Context())
		}
	}
}

// bySecond reports whether attempts within one second would have one nonce.
func (t *Transport) bySecond() bool {
	if t.Options == nil {
		return false
	}
	_, ok := t.Options.Scheme.(*StandardWebhooks)
	return ok
}

var errRedirected = errors.New("sign: a redirect to another host is not signed")

// leads reports whether r comes from a redirect that leads away from where the request went.
func leads(r *http.Request) bool {
	if r.Response == nil {
		return false
	}
	if r.Response.Request == nil || r.Response.Request.URL == nil || r.URL == nil {
		return true // who knows
	}
	from := r.Response.Request.URL
	return origin(from) != origin(r.URL)
}

// origin is scheme, host and port (RFC 6454, section 4).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// drain reads what there is of a body that is not wanted, so that its connection can be used again, but
// waits for none of it for long.
func drain(body io.ReadCloser) {
	timer := time.AfterFunc(maxDraining, func() { body.Close() })
	_, _ = io.CopyN(io.Discard, body, maxDrained)
	timer.Stop()
	body.Close()
}

func (t *Transport) isRepeatable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	name := t.OperationHeader
	setDefault(&name, form.IdempotencyKey)
	return r.Header.Get(name) != ""
}

// nextPause says whether an attempt, the nth, is worth another one, and when.
func nextPause(ctx context.Context, resp *http.Response, err error, n int) (pause time.Duration, again bool) {
	grown := firstPause << min(n-1, 10)
	pause = grown/2 + rand.N(grown)
	if err != nil {
		return pause, ctx.Err() == nil
	}
	asked, says := retryAfterOf(resp)
	if says {
		pause = asked
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return pause, true
	case http.StatusConflict, http.StatusTooEarly:
		return pause, says
	}
	return 0, false
}

// retryAfterOf parses Retry-After: seconds, or a date (RFC 9110, section 10.2.3), which is
// compared with the response's own Date.
func retryAfterOf(resp *http.Response) (time.Duration, bool) {
	field := resp.Header.Get("Retry-After")
	switch seconds, err := strconv.ParseUint(field, 10, 31); {
	case err == nil:
		return time.Duration(seconds) * time.Second, true
	case errors.Is(err, strconv.ErrRange):
		return math.MaxInt64, true
	}
	at, err := http.ParseTime(field)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0), true
}

func hasTime(ctx context.Context, pause time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > pause
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
