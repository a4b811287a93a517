package sign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/retry"
	"github.com/idem-go/idem/sign/internal/form"
)

// Transport is an [http.RoundTripper] that signs requests and retries them. Each attempt has a new timestamp, nonce and
// signature, and the same Idempotency-Key, so the operation happens once.
//
//	client := &http.Client{Transport: &sign.Transport{Key: key}}
//
// A request is retried only if its method is idempotent (RFC 9110, section 9.2.2) or it has an Idempotency-Key (see
// OperationHeader). It is then retried after a connection error, after 408, 425, 429, 502, 503 and 504, and after 409 with
// a Retry-After. The pause is what Retry-After asks for and a little more, or else random and growing. The client gets the last
// attempt's response or error. As the Base of a [github.com/idem-go/idem/idemclient.Transport], which retries itself, a Transport
// makes one attempt for each try of the outer one, and retries only the requests that the outer one passes on.
//
// A redirect to another host or scheme is an error, because the server could choose what the client signs for a third party.
//
// The whole body is read into memory before the first attempt. The request's context does not interrupt that reading. Do not change the
// fields once the transport is in use. It is safe for concurrent use.
type Transport struct {
	// Key signs the requests. It must be set.
	Key *Key
	// Options are the options for signing.
	Options RequestOptions
	// Base sends the requests. Nil: [http.DefaultTransport].
	Base http.RoundTripper
	// MaxAttempts is how many times a request is sent at most. Zero: 3. One: no retries.
	MaxAttempts int
	// OperationHeader is the name of the header field that identifies the operation. A request with this field may be
	// retried. Empty: Idempotency-Key. Set it to Webhook-Id for webhook.NewStandard.
	OperationHeader string
	// MaxWait is the longest pause between two attempts. If the server asks for a longer pause, there is no retry, and the client gets
	// the server's answer. With schemes that derive the nonce from the timestamp (webhook.NewStandard, webhook.Stripe, webhook.Slack),
	// attempts are at least a second apart, so a MaxWait under 1 s means no retries. Zero: 30 s.
	MaxWait time.Duration
}

const (
	defaultAttempts = 3
	defaultMaxWait  = 30 * time.Second
)

// RoundTrip implements [http.RoundTripper]. It closes r's body and changes nothing else of r.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readAll(r)
	if err == nil && leavesOrigin(r) {
		err = errRedirected
	}
	if err == nil && r.URL != nil {
		if never := retry.Check(r); never != nil {
			err = fmt.Errorf("sign: %w", never)
		}
	}
	outer := retry.FromContext(r.Context())
	if err != nil {
		if outer != nil {
			outer.Fault = err
		}
		return nil, err
	}
	c := &call{t, r, body}
	if outer != nil {
		try := c.Send()
		if outer.Apart = try.Apart; try.Verdict == retry.Final {
			outer.Fault = try.Err
		}
		return try.Response, try.Err
	}
	policy := retry.Policy{MaxTries: cmp.Or(t.MaxAttempts, defaultAttempts), MaxWait: cmp.Or(t.MaxWait, defaultMaxWait)}
	if !t.isRepeatable(r) {
		policy.MaxTries = 1
	}
	last, why := policy.Do(r.Context(), c)
	if why == retry.Ended {
		return nil, context.Cause(r.Context())
	}
	return last.Response, last.Err
}

// call is a request with its body, as [retry.Request].
type call struct {
	t    *Transport
	r    *http.Request
	body []byte
}

func (c *call) Send() retry.Try {
	attempt := c.r.Clone(c.r.Context())
	derived, err := signRequest(attempt, c.body, c.t.Key, c.t.Options)
	if err != nil {
		return retry.Try{Err: err}
	}
	base := c.t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	resp, err := base.RoundTrip(attempt)
	if resp == nil && err == nil {
		return retry.Try{Err: errNothing}
	}
	try := retry.Try{Response: resp, Err: err, Verdict: judge(resp, err)}
	if derived { // from the second, so that the next attempt would be a replay in the same one
		try.Apart = time.Second
	}
	return try
}

func (*call) Reserve(time.Duration) (time.Duration, bool) { return 0, true }
func (*call) IsExpired(time.Duration) bool                { return false }
func (*call) Observe(retry.Try, time.Duration)            {}

var (
	errRedirected = errors.New("sign: a redirect to another host is not signed")
	errNothing    = errors.New("sign: Transport.Base has returned no response and no error")
)

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

func (t *Transport) isRepeatable(r *http.Request) bool {
	return retry.IsSafe(r.Method) || r.Method == http.MethodPut || r.Method == http.MethodDelete ||
		r.Header.Get(cmp.Or(t.OperationHeader, form.IdempotencyKey)) != ""
}

func judge(resp *http.Response, err error) retry.Verdict {
	if err != nil || retry.IsTransient(resp.StatusCode) || resp.StatusCode == http.StatusConflict && resp.Header.Get("Retry-After") != "" {
		return retry.Again
	}
	return retry.Final
}
