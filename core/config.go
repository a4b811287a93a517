package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem/core/store"
)

// Config configures an [Engine]. The zero Config has the in-process store, no user source (each policy
// then has to name one), and no observer.
type Config struct {
	// Store keeps the records. Nil: a new in-process store with default bounds.
	Store store.Store

	// User tells callers apart for policies that name no source of their own.
	//
	// Under such a policy the user of a request from a verified caller ([WithCaller]) is that
	// caller. If User finds a user as well, the two together are the user, so that the users
	// of one caller stay apart. Addresses (UserFromRemoteAddr, UserFromRealIP) and
	// SharedByAllCallers add nothing to a verified caller. Set [UserFromCaller] if all routes
	// are signed.
	User UserSource

	// Prefix begins every stored key. Empty: "idem:". At most 128 bytes, without blanks and
	// control characters.
	Prefix string

	// StoreTimeout is how long one call of the store may take. Zero: 2 s. Calls of a local store
	// ([store.Local]) have no deadline; for them it is only how long [Engine.Drain] waits for
	// the runs whose contexts it has ended.
	StoreTimeout time.Duration

	// Observe gets the events. It is called synchronously and concurrently, and must return
	// quickly. Nil: events are dropped. See [LogEvents].
	Observe func(ctx context.Context, e Event)

	// Refuse makes the answer of a refusal, for services with their own error format: they may
	// answer 200 to everything, 409 where 422 is the default, or show a page to a browser. It may
	// change r. r.Request is never nil, and valid during the call only. A Status of zero in the
	// answer means r.Status. A nil answer, or a nil Refuse, means application/problem+json (RFC
	// 9457). Every refusal gets [RefusedHeader] and Cache-Control: no-store, whatever Refuse
	// returns, and Retry-After if r.RetryAfter is set and Refuse sets none. Refuse is called
	// concurrently.
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
