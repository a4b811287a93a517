package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem/core/store"
)

// Config is what an [Engine] is built from. The zero Config is the in-process store, no
// user source (each policy then has to name one) and no observer.
type Config struct {
	// Store keeps the records. Nil: a new in-process store with default bounds.
	Store store.Store

	// User tells callers apart for policies that name no source of their own.
	//
	// For such a policy the user of a request whose caller is verified ([WithCaller]: a
	// signature in front of the guard) is that caller; and if User knows one as well, both
	// together are, so that the users of one caller stay apart. What only tells addresses
	// or nothing (UserFromRemoteAddr, UserFromRealIP, SharedByAllCallers) adds nothing to a
	// caller who is known. Where all routes are signed, [UserFromCaller] is what to set.
	User UserSource

	// Prefix stands in front of every stored key. Empty: "idem:". At most 128 bytes, without blanks and
	// control characters.
	Prefix string

	// StoreTimeout is how long one call of the store may take. Zero: 2 s. A store that
	// is local to the process has no deadline; there it is only how long [Engine.Drain] gives the
	// runs that it has ended.
	StoreTimeout time.Duration

	// Observe is told what happens. It is called synchronously and concurrently, and
	// must return quickly. Nil: nobody is told. See [LogEvents].
	Observe func(ctx context.Context, e Event)

	// Refuse makes the answer of a refusal, for services with an error format of their own: they
	// may answer 200 to everything, 409 where 422 is the default, or show a page to a browser.
	// r is the function's own; r.Request is always there, and valid during the call only. In the
	// answer, a Status of zero is r.Status; a nil answer is the default one:
	// application/problem+json (RFC 9457).
	// [RefusedHeader] and Cache-Control: no-store are on every refusal, whatever Refuse makes of
	// it, and Retry-After if it sets none and r.RetryAfter says so. It is called concurrently.
	Refuse func(ctx context.Context, r *Refusal) *Response
}

const (
	defaultPrefix       = "idem:"
	defaultStoreTimeout = 2 * time.Second
)

// ConfigError is one fault of a [Config] or [Policy]. [New] and [Engine.Guard] report
// all faults at once; find them with errors.As, or take the joined error apart with
// its Unwrap() []error method.
type ConfigError struct {
	// Field is the faulty field, such as "Policy.Lease".
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error returns field and problem.
func (e *ConfigError) Error() string { return "idem: " + e.Field + ": " + e.Problem }

// faults collects configuration errors.
type faults struct {
	of   string
	errs []error
}

func (f *faults) add(field, format string, args ...any) {
	f.errs = append(f.errs, &ConfigError{Field: f.of + "." + field, Problem: fmt.Sprintf(format, args...)})
}

func (f *faults) addIf(bad bool, field, format string, args ...any) {
	if bad {
		f.add(field, format, args...)
	}
}

func (f *faults) err() error { return errors.Join(f.errs...) }

func quote(s string) string { return strconv.Quote(s) }
