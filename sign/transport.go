package sign

import (
	"cmp"
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

// Transport is an [http.RoundTripper] that signs requests and retries them. Each attempt has a new timestamp, nonce and
// signature, and the same Idempotency-Key, so the operation happens once.
//
//	client := &http.Client{Transport: &sign.Transport{Key: key}}
//
// A request is retried only if its method is idempotent (RFC 9110, section 9.2.2) or it has an Idempotency-Key (see
// OperationHeader). It is then retried after a connection error, after 429, 502, 503 and 504, and after 409 and 425 with a
// Retry-After. The pause is what Retry-After asks for, or else random and growing. The last attempt's response or error goes
// to the client.
//
// A redirect to another host or scheme is an error, because the server could choose what the client signs for a third party.
//
// The whole body is read into memory before the first attempt. The request's context does not interrupt that reading. Do not
// change the fields once the transport is in use; it is then safe for concurrent use.
type Transport struct {
	// Key signs the requests. It must be set.
	Key *Key
	// Options say how to sign.
	Options RequestOptions
	// Base sends the requests. Nil: [http.DefaultTransport].
	Base http.RoundTripper
	// MaxAttempts is how many times a request is sent at most. Zero: 3. One: no retries.
	MaxAttempts int
	// OperationHeader is the name of the header field that identifies the operation. A request with this field may be
	// retried. Empty: Idempotency-Key. Set it to Webhook-Id for [NewStandardWebhooks].
	OperationHeader string
	// MaxWait is the longest pause between two attempts. If the server asks for a longer one, there is no retry, and the
	// client gets the server's answer. Zero: 30 s. Attempts are at least a second apart with schemes that derive the nonce
	// from the timestamp ([NewStandardWebhooks], [Stripe], [Slack]): a MaxWait under 1 s then means no retries.
	MaxWait time.Duration
}

const (
	defaultAttempts = 3
	defaultMaxWait  = 30 * time.Second
	firstPause      = 100 * time.Millisecond
	// maxDrained is how many bytes of an unused response are read, so that its connection can serve the next attempt.
	maxDrained = 64 << 10
	// maxDraining is how long that may take.
	maxDraining = 50 * time.Millisecond
)

// RoundTrip implements [http.RoundTripper]. It closes r's body and changes nothing else of r.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readAll(r)
	if err != nil {
		return nil, err
	}
	if leavesOrigin(r) {
		return nil, errRedirected
	}
	base, attempts, maxWait := t.Base, cmp.Or(t.MaxAttempts, defaultAttempts), cmp.Or(t.MaxWait, defaultMaxWait)
	if base == nil {
		base = http.DefaultTransport
	}
	if !t.isRepeatable(r) {
		attempts = 1
	}
	for n := 1; ; n++ {
		attempt := r.Clone(r.Context())
		derived, err := signRequest(attempt, body, t.Key, t.Options)
		if err != nil {
			return nil, err
		}
		resp, err := base.RoundTrip(attempt)
		if n >= attempts {
			return resp, err
		}
		pause, again := nextPause(r.Context(), resp, err, n)
		if derived { // from the second, so that the next attempt would be a replay in the same one
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

var errRedirected = errors.New("sign: a redirect to another host is not signed")

// leavesOrigin reports whether r follows a redirect to another origin.
func leavesOrigin(r *http.Request) bool {
	if r.Response == nil {
		return false
	}
	if r.Response.Request == nil || r.Response.Request.URL == nil || r.URL == nil {
		return true // it cannot be known
	}
	from := r.Response.Request.URL
	return origin(from) != origin(r.URL)
}

// origin returns scheme, host and port (RFC 6454, section 4).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// drain reads and closes an unused body, so that its connection can be used again. It stops after a short time.
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
	return r.Header.Get(cmp.Or(t.OperationHeader, form.IdempotencyKey)) != ""
}

// nextPause reports whether to retry after the nth attempt, and how long to wait before.
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

// retryAfterOf parses Retry-After (RFC 9110, section 10.2.3): seconds, or a date, which is compared with the response's Date.
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

// sleep waits for d. It returns false if ctx ends first.
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
