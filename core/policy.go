package core

import (
	"context"
	"time"
)

// Policy says how one route, or one kind of task, is protected. The zero Policy takes
// the key from the parameters, replays to duplicates, holds a claim for 30 seconds
// without renewal, keeps a success for a minute and forgets a failure; it needs a
// user source (here or in [Config.User]) to be compiled.
//
// A Policy is a plain value: copy it, change fields, compile it with [Engine.Guard] or
// [Engine.Task]. A setting that has no effect in its policy is a fault.
type Policy struct {
	// Name appears in events and error messages, and in the keys of a [Task] and of [Token], for
	// which it is required.
	Name string

	// Key is where the identity of an operation comes from. Zero: [Params].
	Key KeySource

	// User tells callers apart. Zero: [Config.User], or the caller who is verified. One of
	// the two fields must be set, if only to [SharedByAllCallers].
	User UserSource

	// Duplicate is what a duplicate gets: [Replay] (zero), [Wait] or [Reject].
	Duplicate Duplicate

	// Message is the detail of the refusal that a duplicate gets under [Reject] when the
	// operation has finished. If failures are kept, it is also shown after one: it must not
	// claim success then. Empty: a general sentence, which tells the two apart.
	Message string

	// Lease is how long a claim stands without renewal; it is renewed each third of
	// it while the handler runs. It bounds how long a crash blocks the operation, and may be
	// longer than Retention. Zero: 30 s. At least 10 ms.
	Lease time.Duration

	// Retention is how long a finished result stands. Zero: 1 minute if the key is made of
	// parameters ([Params], [Fields]), because a customer may well order the same again
	// tomorrow; 24 h if somebody has chosen it ([Header], [Func], a [Task]).
	Retention time.Duration

	// RememberAbandoned is how long an abandoned run is remembered after its lease has passed,
	// whatever the retention: as long as that, the next run knows that it is not the first, and
	// an uncertain outcome stays uncertain. Zero: 24 h.
	RememberAbandoned time.Duration

	// Linger is how much longer a run's context stands when the client has left
	// (context.Canceled of the request): what has been begun is finished, and its result is
	// there for the retry. Zero: 1 minute; negative: the context ends at once. A deadline of
	// the request, or another cause, ends the run's context at once. So does the client's
	// leaving once a part of the response has been streamed to it, and the end of the context that
	// a task was given.
	Linger time.Duration

	// RetainFrom is the moment from which Retention counts. Zero: [FromEnd].
	RetainFrom Moment

	// OnSuccess and OnFailure say what becomes of the record of a run that has finished.
	// Zero: a success is kept, a failure is released. A handler can decide otherwise about its
	// own run, see [Run].
	OnSuccess, OnFailure Disposition

	// Failed decides whether a response is a failure. Nil: [FailedByAnyError] if the key is made
	// of parameters, for then the caller can't choose another one, and after a top-up the form
	// that got 402 must run; else [FailedByStatus]. The response is valid only during the call
	// and must not be changed; its Body is not the whole one if it was streamed or over
	// ResponseLimit.
	//
	// These are failures in any case, and Failed is not asked: a panic; an error that nothing
	// has rendered; a refusal ([RefusedHeader]), by whomever; nothing written by a handler whose
	// context has ended.
	Failed func(*Response) bool

	// Abandoned says what happens to an operation whose earlier run never finished.
	// Zero: [TakeOver].
	Abandoned Recovery

	// Reconcile is asked about an abandoned run when Abandoned is [Uncertain]. It may
	// be called concurrently for one operation; of several verdicts one counts. Nil:
	// nobody knows; duplicates get 409 uncertain until the record is forgotten.
	Reconcile func(ctx context.Context, u Uncertainty) (Verdict, error)

	// FailOpen runs the handler unprotected, and reports it, when the store cannot be
	// reached before the handler. Without it such a request gets 503. It does not go with
	// [Uncertain].
	FailOpen bool

	// Authorize is asked before a stored response is replayed, for rights that may have
	// been withdrawn since. An error refuses with 403 not_authorized; the error
	// goes to the observer only.
	Authorize func(ctx context.Context, r *Request) error

	// Exclude says which parameters do not count. Zero: the default names under [Params] (see
	// [Exclude]), none under another key source.
	Exclude Exclusion

	// RequestHeaders are names of header fields that count as parameters: Upload-Offset, or
	// X-Amz-Target. The preconditions and ranges of RFC 9110 (If-Match, If-None-Match,
	// If-Modified-Since, If-Unmodified-Since, If-Range, Range, Content-Range) count always, and
	// so does the media type of the body.
	RequestHeaders []string

	// IgnoreFingerprint makes the key alone decide. Without it a request that shows a known
	// key with other parameters is a misuse and gets 422 key_reused. It is for keys that
	// somebody has chosen ([Header], [Func], a [Task]), but not for a [Token], whose key names no route.
	IgnoreFingerprint bool

	// WithoutFiles leaves the files of a multipart form out of the parameters.
	WithoutFiles bool

	// WithoutFileNames leaves only the names of files out: a file counts by its field and content.
	WithoutFileNames bool

	// EchoKey adds to answers of the handler and to replays the client's key ([DefaultKeyHeader],
	// or the header field that [KeySource.Named] says) and, in [ExpiresHeader], when the
	// result will be forgotten, if it is kept. It needs [Header]. A response that has begun to
	// leave before its handler has returned goes without.
	EchoKey bool

	// Digest is the algorithm for parameters. Zero: [MD5]; under FIPS 140 it must be
	// [SHA256].
	Digest Digest

	// BodyLimit is the largest request body in bytes; a larger one gets 413. Zero: 1 MiB.
	BodyLimit int64

	// ResponseLimit is the largest response body in bytes that is held back, shown to Failed
	// and stored; of a larger one only the fact is kept. Zero: 1 MiB.
	ResponseLimit int

	// StoredHeaders says which header fields of a response are stored. Zero: the default
	// ones, see [DropHeaders].
	StoredHeaders HeaderFilter

	// window says that Retention and RetainFrom are those of DoubleClick: its options may leave
	// them without effect.
	window bool
}

// Defaults of a [Policy].
const (
	DefaultLease             = 30 * time.Second
	DefaultRetention         = time.Minute    // of keys made of parameters
	DefaultKeyRetention      = 24 * time.Hour // of keys that somebody has chosen
	DefaultRememberAbandoned = 24 * time.Hour
	DefaultLinger            = time.Minute
	DefaultBodyLimit         = 1 << 20
	DefaultResponseLimit     = 1 << 20

	minLease = 10 * time.Millisecond
)

// Duplicate is what a duplicate of an operation gets: [Replay], [Reject] or what
// [Wait] returns. Every other value is a fault of the policy.
type Duplicate int64

const (
	// Replay answers with the first response if the operation has finished, and with
	// 409 in_progress while it runs. It is the zero value.
	Replay Duplicate = 0
	// Reject answers 409 in_progress while the operation runs and 409 duplicate with
	// the policy's message once it has finished. No response is stored.
	Reject Duplicate = -1

	invalidWait Duplicate = -2
	// waits marks what Wait has made: a plain number is no Duplicate.
	waits Duplicate = 1 << 62
)

// Wait makes a duplicate of a running operation wait for its result, for at most
// limit, and then replays it; at the limit it gets 409 in_progress. If the run
// fails, exactly one of those who wait runs next. limit must be more than zero.
func Wait(limit time.Duration) Duplicate {
	if limit <= 0 || Duplicate(limit) >= waits {
		return invalidWait
	}
	return waits | Duplicate(limit)
}

// limit returns how long a duplicate waits; zero: not at all.
func (d Duplicate) limit() time.Duration {
	if d < waits {
		return 0
	}
	return time.Duration(d &^ waits)
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
	// Abandon leaves what a crash leaves, but at once: the run may have taken effect.
	// [Policy.Abandoned] says what the next request gets. It is for failures.
	Abandon
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
	// Request is the duplicate that asks, valid only during the call. Nil for a [Task].
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

// SettledValue is [Settled] for a [Task]; value is what [Do] would have stored: the bytes, if its
// function returns []byte, else JSON.
func SettledValue(value []byte) Verdict { return Verdict{kind: verdictSettled, value: value} }

// FailedByStatus says that these answers mean "not done, try again": a status of 500 and above,
// 408, 425 and 429 (RFC 9110, RFC 8470, RFC 6585), 499 (the client has gone), and every 4xx with
// a Retry-After. It is the default of [Policy.Failed] for keys that the client has chosen.
func FailedByStatus(r *Response) bool {
	switch r.Status {
	case 408, 425, 429, 499:
		return true
	}
	return r.Status >= 500 || r.Status >= 400 && r.Get("Retry-After") != ""
}

// FailedByAnyError says that every status of 400 and above is a failure. It is the default of
// [Policy.Failed] for keys made of parameters.
func FailedByAnyError(r *Response) bool { return r.Status >= 400 }
