package core

import (
	"context"
	"time"
)

// Policy says how one route, or one kind of task, is protected. The zero Policy takes
// the key from the parameters, replays to duplicates, holds a claim for 30 seconds
// without renewal, keeps a success for 24 hours and forgets a failure; it needs a
// user source (here or in [Config.User]) to be compiled.
//
// A Policy is a plain value: copy it, change fields, compile it with [Engine.Guard].
type Policy struct {
	// Name appears in events and error messages, and in the keys of [Engine.Do],
	// where it is required.
	Name string

	// Key is where the identity of an operation comes from. Zero: [Params].
	Key KeySource

	// User tells callers apart. Zero: [Config.User], or the caller who is verified. One of
	// the two fields must be set, if only to [SharedByAllCallers].
	User UserSource

	// Duplicate is what a duplicate gets: [Replay] (zero), [Wait] or [Reject].
	Duplicate Duplicate

	// Message is the detail of the refusal that a duplicate gets under [Reject].
	// Empty: a general sentence.
	Message string

	// Lease is how long a claim stands without renewal; it is renewed each third of
	// it while the handler runs. It bounds how long a crash blocks the operation.
	// Zero: 30 s. At least 10 ms.
	Lease time.Duration

	// Retention is how long a finished result stands, and how long an abandoned run
	// is remembered. Zero: 24 h.
	Retention time.Duration

	// RetainFrom is the moment from which Retention counts. Zero: [FromEnd].
	RetainFrom Moment

	// OnSuccess and OnFailure say whether the record of a run is kept or released
	// when it has finished. Zero: a success is kept, a failure is released.
	OnSuccess, OnFailure Disposition

	// Failed decides whether a response is a failure. Nil: [FailedByStatus]. The
	// response is valid only during the call and must not be changed; its Body is
	// not the whole one if it was streamed or over ResponseLimit. A panic always
	// counts as a failure, and so does an error that nothing has rendered.
	Failed func(*Response) bool

	// Abandoned says what happens to an operation whose earlier run never finished.
	// Zero: [TakeOver].
	Abandoned Recovery

	// Reconcile is asked about an abandoned run when Abandoned is [Uncertain]. It may
	// be called concurrently for one operation; of several verdicts one counts. Nil:
	// nobody knows; duplicates get 409 uncertain until the record is forgotten.
	Reconcile func(ctx context.Context, u Uncertainty) (Verdict, error)

	// FailOpen runs the handler unprotected, and reports it, when the store cannot be
	// reached before the handler. Without it such a request gets 503.
	FailOpen bool

	// Authorize is asked before a stored response is replayed, for rights that may have
	// been withdrawn since. An error refuses with 403 not_authorized; the error
	// goes to the observer only.
	Authorize func(ctx context.Context, r *Request) error

	// Exclude says which parameters do not count. Zero: the default names,
	// see [Exclude].
	Exclude Exclusion

	// AnyParameters makes the key alone decide. Without it a request that shows a known
	// key with other parameters is a misuse and gets 422 key_reused.
	AnyParameters bool

	// WithoutFiles leaves the files of a multipart form out of the parameters.
	WithoutFiles bool

	// Digest is the algorithm for parameters. Zero: [MD5]; under FIPS 140 it must be
	// [SHA256].
	Digest Digest

	// BodyLimit is the largest request body in bytes; a larger one gets 413. Zero: 1 MiB.
	BodyLimit int64

	// ResponseLimit is the largest response body in bytes that is stored; of a larger
	// one only the fact is kept. Zero: 1 MiB.
	ResponseLimit int

	// StoredHeaders says which header fields of a response are stored. Zero: the default
	// ones, see [DropHeaders].
	StoredHeaders HeaderFilter
}

// Defaults of a [Policy].
const (
	DefaultLease         = 30 * time.Second
	DefaultRetention     = 24 * time.Hour
	DefaultBodyLimit     = 1 << 20
	DefaultResponseLimit = 1 << 20

	minLease = 10 * time.Millisecond
)

// Duplicate is what a duplicate of an operation gets: [Replay], [Reject] or what
// [Wait] returns.
type Duplicate int64

const (
	// Replay answers with the first response if the operation has finished, and with
	// 409 in_progress while it runs. It is the zero value.
	Replay Duplicate = 0
	// Reject answers 409 in_progress while the operation runs and 409 duplicate with
	// the policy's message once it has finished. No response is stored.
	Reject Duplicate = -1

	invalidWait Duplicate = -2
)

// Wait makes a duplicate of a running operation wait for its result, for at most
// limit, and then replays it; at the limit it gets 409 in_progress. If the run
// fails, exactly one of those who wait runs next. limit must be more than zero.
func Wait(limit time.Duration) Duplicate {
	if limit <= 0 {
		return invalidWait
	}
	return Duplicate(limit)
}

// Moment is a point in a run from which a retention counts.
type Moment uint8

const (
	// FromEnd counts from the end of the run. It is the zero value.
	FromEnd Moment = iota
	// FromStart counts from the start of the run. A run that takes longer than the
	// retention leaves nothing behind.
	FromStart
)

// Disposition says what happens to a record when its run has finished.
type Disposition uint8

const (
	// ByDefault keeps successes and releases failures. It is the zero value.
	ByDefault Disposition = iota
	// Keep lets the result stand for the policy's retention.
	Keep
	// Release forgets the run, so that the next request runs.
	Release
)

// Recovery says what happens to an operation whose earlier run was abandoned: begun,
// and not finished when its lease passed.
type Recovery uint8

const (
	// TakeOver lets the next request run the operation again, with an attempt number
	// one higher. It is the zero value.
	TakeOver Recovery = iota
	// Uncertain refuses with 409 uncertain until [Policy.Reconcile] decides.
	Uncertain
)

// Uncertainty is what [Policy.Reconcile] is told about an abandoned run.
type Uncertainty struct {
	// Key is the operation's key.
	Key Key
	// Attempt is the number of the abandoned run.
	Attempt uint64
	// Request is the duplicate that asks, valid only during the call. Nil
	// under [Engine.Do].
	Request *Request
}

// Verdict is what [Policy.Reconcile] has found out. The zero Verdict is [Unknown].
type Verdict struct {
	kind     verdictKind
	response *Response
	value    []byte
}

type verdictKind uint8

const (
	verdictUnknown verdictKind = iota
	verdictRunAgain
	verdictSettled
)

// Unknown says that nobody knows yet; the duplicate gets 409 uncertain.
func Unknown() Verdict { return Verdict{} }

// RunAgain says that the abandoned run had no effect; the operation is taken over.
func RunAgain() Verdict { return Verdict{kind: verdictRunAgain} }

// Settled says that the abandoned run did take effect, and that this is its response;
// it is stored and replayed.
func Settled(r *Response) Verdict { return Verdict{kind: verdictSettled, response: r} }

// SettledValue is [Settled] for a run of [Engine.Do].
func SettledValue(value []byte) Verdict { return Verdict{kind: verdictSettled, value: value} }

// FailedByStatus is the default of [Policy.Failed]: a status of 500 and above, 425,
// 429 and 408 (RFC 9110, RFC 8470, RFC 6585) says that the operation was not done
// and may be tried again.
func FailedByStatus(r *Response) bool {
	return r.Status >= 500 || r.Status == 429 || r.Status == 425 || r.Status == 408
}
