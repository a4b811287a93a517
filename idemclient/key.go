package idemclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/retry"
)

// Header fields.
const (
	keyHeader     = "Idempotency-Key"
	refusedHeader = "Idempotency-Refused"
	expiresHeader = "Idempotency-Key-Expires"
)

// WithKey returns a context for a request whose key the caller has stored, so that the operation can continue after a crash. The
// key is sent unchanged. Guards of this module accept an RFC 8941 string ("k-1", with its quotes) and a bare token (k-1), and
// treat the two as one key. Other services may accept only one of them. A key must have 1 to 255 printable ASCII characters.
//
// firstSent is when the key was first sent, or at the latest when it was stored. If that is longer ago than
// [Transport.KeyLifetime], or more than a minute in the future, nothing is sent ([ErrOutcomeUnknown]). Zero means that the key has
// not been sent yet. For a key that the run of a guard has derived (core.Run.Derive), pass core.Run.Begun.
//
// The key is for one operation: requests of the context with another method or URL are refused. Safe methods, and hosts that are
// not guarded, do not get it.
func WithKey(ctx context.Context, key string, firstSent time.Time) context.Context {
	return context.WithValue(ctx, chosenKey{}, &chosen{key: key, first: firstSent})
}

type chosenKey struct{}

// chosen is a key that the caller has stored.
type chosen struct {
	key    string
	first  time.Time
	target atomic.Pointer[string] // of the requests that it is for; nil before the first
}

// skew is how far a caller's firstSent may lie ahead: it may come from another machine.
const skew = time.Minute

var errTwoRequests = errors.New("idemclient: this context's key was used for a request with another method or URL")

// check returns an error if the key is none, or not for the request r.
func (c *chosen) check(r *http.Request) error {
	if target := r.Method + " " + r.URL.String(); r.Response == nil &&
		!c.target.CompareAndSwap(nil, &target) && *c.target.Load() != target {
		return errTwoRequests
	}
	if own := r.Header.Get(keyHeader); own != "" && own != c.key {
		return errors.New("idemclient: the request has one Idempotency-Key, and its context has another")
	}
	if len(c.key) < 1 || len(c.key) > 255 || strings.ContainsFunc(c.key, func(c rune) bool { return c < ' ' || c > '~' }) {
		return errors.New("idemclient: a key must have 1 to 255 printable ASCII characters")
	}
	return nil
}

// setKey sets the key of a request and what is known of it. The key is empty if it gets none.
func (c *call) setKey() error {
	c.outer.First, c.outer.Lifetime = time.Now(), cmp.Or(c.t.KeyLifetime, defaultKeyLifetime)
	if retry.IsSafe(c.r.Method) {
		return nil
	}
	if o := earlier(c.r); o != nil {
		c.outer.Key, c.outer.First, c.outer.Lifetime = o.Key, o.First, o.Lifetime
		return nil
	}
	if chosen, ok := c.r.Context().Value(chosenKey{}).(*chosen); ok {
		if c.outer.Key = chosen.key; !chosen.first.IsZero() {
			c.outer.First = chosen.first
		}
		return chosen.check(c.r)
	}
	if c.outer.Key = c.r.Header.Get(keyHeader); c.outer.Key == "" {
		c.outer.Key = `"` + rand.Text() + `"` // an RFC 8941 string of 130 random bits
	}
	return nil
}

// IsExpired reports whether the key must not be sent any more after a pause. The monotonic clock stands still while a machine
// sleeps, and the other one may be set back: the later one counts.
func (c *call) IsExpired(pause time.Duration) bool {
	if c.outer.Key == "" {
		return false
	}
	now := time.Now()
	age := max(now.Sub(c.outer.First), now.Round(0).Sub(c.outer.First.Round(0)))
	return age+pause >= c.outer.Lifetime || age < -skew
}

// earlier returns what is known of the request to a guarded host that has been redirected to r. Nil: there was none.
func earlier(r *http.Request) *retry.Outer {
	for resp := r.Response; resp != nil && resp.Request != nil; resp = resp.Request.Response {
		if o := retry.FromContext(resp.Request.Context()); o != nil && o.Key != "" {
			return o
		}
	}
	return nil
}

// changesMethod reports whether r follows a redirect that has changed the method.
func changesMethod(r *http.Request) bool {
	return r.Response != nil && r.Response.Request != nil && r.Response.Request.Method != r.Method
}

// spelled returns r with the Idempotency-Key under the name by which [http.Header.Get] finds it. net/http sends it under any.
func spelled(r *http.Request) *http.Request {
	for name := range r.Header {
		if name != keyHeader && strings.EqualFold(name, keyHeader) {
			r = r.WithContext(r.Context())
			r.Header = r.Header.Clone()
			r.Header[keyHeader] = append(r.Header[keyHeader], r.Header[name]...)
			delete(r.Header, name)
			return spelled(r)
		}
	}
	return r
}

// withoutKey returns r without an Idempotency-Key, in which http.Client puts that of the first request after each redirect.
func withoutKey(r *http.Request) *http.Request {
	if r.Header.Get(keyHeader) == "" {
		return r
	}
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	r.Header.Del(keyHeader)
	return r
}

// ErrOutcomeUnknown is in the chain of an [*Error] if the key is too old to be sent again. The operation may have been carried
// out, and another try, under this key or another, may carry it out twice. Find out first.
var ErrOutcomeUnknown = errors.New("outcome unknown: the key is too old to be sent")

// Error says why an operation has no answer yet. The operation may have been carried out. To continue, send the request again
// using [WithKey] with Key and FirstSent, unless the error is [ErrOutcomeUnknown].
//
// When [http.Client.Timeout] has passed, net/http returns its own error and drops this one. Set a deadline on the request's
// context instead.
//
// An Error unwraps to the error of the last try, to the cause of the context's end, and to ErrOutcomeUnknown, where they apply.
type Error struct {
	// Key is the Idempotency-Key. Empty: the request had none.
	Key string
	// FirstSent is when the key was first sent.
	FirstSent time.Time
	// Tries is how many times the request was sent, including the times that net/http has sent it by itself.
	Tries int
	// Response is the answer to the last try. Up to 64 KiB of its body are in memory, and it need not be closed. Nil: that try had
	// no answer.
	Response *http.Response

	why    string
	causes []error
}

// Error says how many times the request was sent, why it is not sent again, and what the last try resulted in. It does not contain
// the key.
func (e *Error) Error() string {
	text := "idemclient: " + e.why + "; sent once"
	if e.Tries != 1 {
		text = fmt.Sprintf("idemclient: %s; sent %d times", e.why, e.Tries)
	}
	if e.Response != nil {
		text += fmt.Sprintf("; the last answer is %d %s", e.Response.StatusCode, http.StatusText(e.Response.StatusCode))
	}
	for _, cause := range e.causes {
		text += ": " + cause.Error()
	}
	return text
}

// Unwrap returns the causes.
func (e *Error) Unwrap() []error { return e.causes }

// Timeout reports whether a time limit has ended the last try. [net/url.Error.Timeout] calls it.
func (e *Error) Timeout() bool {
	for _, cause := range e.causes {
		if limit, ok := cause.(interface{ Timeout() bool }); ok && limit.Timeout() {
			return true
		}
	}
	return false
}
