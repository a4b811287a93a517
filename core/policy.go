package core

import (
	"context"
	"strconv"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
)

// Policy says how a route is protected. The zero Policy makes the key from the parameters, replays to duplicates, has a lease of 30
// seconds, keeps a success for a minute (that of a PUT or DELETE not at all, see [Record].OnSuccess), and forgets a failure. It
// needs a user source, here or in [Config.User].
//
// A Policy is a plain value: copy it, change fields, and compile it with [Engine.Guard]. A setting that has no effect in its policy
// is a fault. For operations that are not HTTP requests there is [TaskPolicy].
type Policy struct {
	// Name appears in logs, metrics, records and error messages. [Token] requires it as the purpose of the tokens. [SignedEvent]
	// requires it, too: all guards of one name share their events. For other keys it is no part of the key, and empty means params,
	// client-key ([Header]), body-key ([BodyKey]) or func ([Func], [CallerEvent]).
	Name string

	// Key is where the identity of an operation comes from, and which parameters count. Zero: [Params].
	Key KeySource

	// Compare says how the parameters of two requests with one key are compared, for keys that somebody has chosen: [Header],
	// [Func], [BodyKey], [CallerEvent], [CompareContent]. Zero: by what they mean, see [Params].
	Compare Comparison

	// User tells callers apart. Zero: [Config.User], combined with the verified caller as described there. One of the two fields
	// must be set, even if only to [SharedByAllCallers].
	User UserSource

	// Duplicate is what a duplicate gets. Zero: [Replay].
	Duplicate Duplicate

	// Record says how long the operation's record is kept, and what becomes of it. Its fields are also fields of the Policy:
	// policy.Lease.
	Record

	// RefuseExpired is how long a key is remembered after its result has been dropped. Once Retention has passed, the record has no
	// result, and requests with the key are refused with 410 key_expired, whatever their parameters. Without RefuseExpired the
	// first of them would run. The same applies to a failure that is kept, but not to what an operator settles, who says how long
	// that is kept. It works with keys that somebody has chosen: [Header], [Func], [BodyKey], [CallerEvent]. A [SignedEvent] is not
	// refused: its sender gets 200 without a body. The store must declare Outlive (see store.Capabilities). Zero: a key is
	// forgotten with its result.
	RefuseExpired time.Duration

	// Failed decides whether a response is a failure. Nil: every status but 2xx is one for a [SignedEvent]; [FailedByAnyError]
	// decides if the key is made of parameters or is a token, because the caller can't choose another key (a form refused with 402
	// must be able to run again once the account is topped up); otherwise [FailedByStatus] decides. The response is valid only
	// during the call and must not be changed. Its Body is incomplete if the response was streamed or exceeds ResponseLimit. Failed
	// is called concurrently.
	//
	// The following are failures in any case, without a call of Failed: a panic; an error that nothing has rendered; a refusal
	// ([RefusedHeader]), even another service's; and a handler that writes nothing after its context has ended.
	Failed func(*Response) bool

	// Authorize is called before a stored response is replayed, because the caller may have lost its rights since. An error refuses
	// with 403 not_authorized; only the observer sees the error. It is called concurrently. Nil: replays need no permission.
	Authorize func(ctx context.Context, r *Request) error

	// Refuse makes the answers of refusals under this policy, for routes whose protocol has an error format of its own. It is
	// called as [Config.Refuse] is. If its answer is nil, [Config.Refuse] is asked. Nil: [Config.Refuse].
	Refuse func(ctx context.Context, r *Refusal) *Response

	// Replayed makes the answer to a duplicate from the stored response, for protocols that mark a replay in the body, or whose
	// answer contains something of the duplicate. r has its Body. stored already has [ReplayedHeader]. Neither stored nor its Body
	// may be changed, and r and stored are valid only during the call. A Status of zero in the answer means that of stored.
	// [ReplayedHeader] is added in any case. A nil answer, or a nil Replayed, means stored. It is called concurrently.
	Replayed func(ctx context.Context, r *Request, stored *Response) *Response

	// FailOpen runs the handler unprotected when the store fails before the run, with the event [Unprotected]. Without it such a
	// request gets 503. A duplicate of an unsettled run is still answered from its result. FailOpen contradicts [Uncertain].
	FailOpen bool

	// Linger is how long a run's context stays valid after the client has left (the request's context has ended with
	// context.Canceled), so that the run finishes and its result is there for the retry. Zero: 1 minute. Negative: the context ends
	// at once. A deadline of the request, or another cause, always ends the run's context at once. So does the client's leaving
	// after a part of the response was streamed to it.
	Linger time.Duration

	// Digest is the digest algorithm for parameters. Zero: MD5. Under FIPS 140 it must be [SHA256]. Under [Config].Seal the digest
	// is always HMAC-SHA-256. While that has AllowUnsealed, leave Digest as it was before.
	Digest Digest

	// BodyLimit is the largest request body, in bytes. A larger one gets 413. Zero: 1 MiB.
	BodyLimit int64

	// ResponseLimit is the largest response body, in bytes, that is held back, shown to Failed and stored. A larger response is
	// sent, but not stored: duplicates get 409 result_unavailable. Zero: 1 MiB.
	ResponseLimit int

	// StoredHeaders says which header fields of a response are stored. Zero: see [HeaderFilter].
	StoredHeaders HeaderFilter
}

// TaskPolicy says how a kind of task is protected: messages, cron jobs, RPC. [Engine.Task] compiles it. The zero value of each
// field except Name is sensible: it replays to duplicates, has a lease of 30 seconds, keeps a success for 24 hours, and forgets a
// failure.
type TaskPolicy struct {
	// Name is required, because it is a part of the stored keys. Equal keys of tasks with different names are different operations.
	// Two tasks of one name share their operations. Name appears in events and error messages.
	Name string

	// Presence says whether a call must have a [Call].Key. Zero: [Required], which refuses a call without one with key_missing.
	// [Optional] runs the function of such a call unprotected, each time, with the event [Passed]. [OrParams] is for requests only.
	Presence Presence

	// Duplicate is what a duplicate gets. Zero: [Replay].
	Duplicate Duplicate

	// Record says how long the operation's record is kept, and what becomes of it.
	Record

	// FailOpen runs the function unprotected when the store fails before the run, see [Policy].FailOpen.
	FailOpen bool

	// IgnoreFingerprint makes the key alone decide, whatever [Call].Fingerprint says. Without it a call with a known key and
	// another fingerprint is refused with key_reused.
	IgnoreFingerprint bool

	// Linger is how long the context of a run stays valid after the caller has left, see [Policy].Linger. Zero: it ends with the
	// caller's.
	Linger time.Duration

	// ResultLimit is the largest value, in bytes, that is stored, encoded as [Do] describes. A larger one is returned, but
	// duplicates get result_unavailable. Zero: 1 MiB.
	ResultLimit int
}

// Record is the part of a policy that requests and tasks share: how long the record of an operation is kept, and
// what becomes of it when a run ends.
type Record struct {
	// Lease is how long a claim is valid without renewal. While the handler runs, the engine renews it after each third of Lease.
	// So Lease bounds how long a crash blocks the operation. It may be longer than Retention. Zero: 30 s. At least 10 ms.
	Lease time.Duration

	// Retention is how long a finished result is kept. Zero: 1 minute if the key is made of parameters ([Params]), because a
	// customer may well order the same again; 96 h for a [SignedEvent]; 24 h for other keys ([Header], [Func], [BodyKey],
	// [CallerEvent], [Token], a [Task]). A PUT or DELETE may keep none, see OnSuccess.
	Retention time.Duration

	// RetainFromStart counts Retention from the start of the run. A run that takes longer than Retention then leaves no record (but
	// see [Policy].RefuseExpired). False: from the end of the run.
	RetainFromStart bool

	// OnSuccess and OnFailure say what becomes of the record of a run that has ended. Zero: a success is kept, a failure is
	// released. A handler can decide otherwise about its own run, see [Run].
	//
	// If the key is made of parameters, and Retention, OnSuccess and OnFailure are all zero, a PUT or DELETE that succeeds is
	// released as well. These methods are idempotent by themselves (RFC 9110, section 9.2.2), and a kept result would answer the
	// third of "quantity 1", "2", "1" from the first. While the first runs, duplicates get what Duplicate says. Waiters in the same
	// process get its result when it ends. Of the waiters in another process exactly one runs next.
	OnSuccess, OnFailure Disposition

	// Abandoned says what happens to an operation whose earlier run never finished. Zero: [TakeOver].
	Abandoned Recovery

	// RememberAbandoned is how long an abandoned run is remembered after its lease has passed, whatever the retention. During that
	// time the next run is a takeover, and an uncertain outcome stays uncertain. It is also how long a failure is kept for the next
	// attempt ([Run.Derive]), and how long after its end an unsettled run is given up. Zero: 24 h; for a [SignedEvent] as long as
	// Retention.
	RememberAbandoned time.Duration
}

// Defaults of policies.
const (
	defaultLease             = 30 * time.Second
	defaultKeyRetention      = 24 * time.Hour // of keys that are not made of parameters
	defaultEventRetention    = 96 * time.Hour // of signed events: senders deliver for up to 76 hours
	defaultRetention         = time.Minute    // of keys made of parameters
	defaultRememberAbandoned = 24 * time.Hour
	defaultLinger            = time.Minute
	defaultBodyLimit         = 1 << 20 // bytes
	defaultResponseLimit     = 1 << 20

	minLease = 10 * time.Millisecond
)

// Duplicate is what a duplicate of an operation gets: [Replay], [Wait] or [Reject]. The zero Duplicate is Replay.
type Duplicate struct {
	kind    duplicateKind
	limit   time.Duration // of a wait
	message string        // of a rejection
}

type duplicateKind uint8

const (
	replays duplicateKind = iota
	waits
	rejects
)

// Replay answers with the first response if the operation has finished, and with 409 in_progress while it runs.
func Replay() Duplicate { return Duplicate{} }

// Wait makes a duplicate of a running operation wait for the run to finish, for at most limit, and then replays the result. At the
// limit the duplicate gets 409 in_progress. If the run fails, or its success is released, exactly one waiter runs next; but see
// [Record].OnSuccess for PUT and DELETE. limit must be greater than zero.
func Wait(limit time.Duration) Duplicate { return Duplicate{kind: waits, limit: limit} }

// Reject answers 409 in_progress while the operation runs, and 409 duplicate once it has finished. No response is stored.
//
// message is the detail of 409 duplicate. If failures are kept, duplicates of a failed operation get it as well, so it must not
// claim success. Empty: one general sentence for successes and another for failures.
func Reject(message string) Duplicate { return Duplicate{kind: rejects, message: message} }

// IsReject reports whether d is a [Reject], with whatever message. It is for packages that run tasks.
func (d Duplicate) IsReject() bool { return d.kind == rejects }

// String returns the call that makes d, such as Wait(5s).
func (d Duplicate) String() string {
	switch d.kind {
	case waits:
		return "Wait(" + d.limit.String() + ")"
	case rejects:
		return "Reject(" + strconv.Quote(d.message) + ")"
	}
	return "Replay()"
}

// Disposition says what becomes of a record when its run has ended. The zero Disposition keeps
// successes and releases failures.
type Disposition uint8

const (
	byDefault Disposition = iota
	// Keep keeps the result for the policy's retention.
	Keep
	// Release forgets the run, so that the next request runs the handler.
	Release
	// Abandon leaves an abandoned record, as a crash does, but without waiting for the lease: the run may have taken effect.
	// [Record].Abandoned says what the next request gets. Use it for failures.
	Abandon
)

// Comparison says how the parameters of two requests are compared.
type Comparison uint8

const (
	byMeaning Comparison = iota
	// RawBody compares bodies byte by byte, for protocols that require it: JSON with its members in another order is another
	// request. Everything else is compared by what it means. No part of such a body can be excluded.
	RawBody
)

// Recovery says what a request gets if the earlier run of its operation was abandoned: [TakeOver] or [Uncertain]. The
// zero Recovery is TakeOver.
type Recovery struct {
	uncertain bool
	reconcile func(context.Context, Uncertainty) (Verdict, error)
}

// TakeOver runs the operation again, with the next attempt number.
func TakeOver() Recovery { return Recovery{} }

// Uncertain refuses with 409 uncertain, unless reconcile knows what became of the abandoned run. reconcile may be called
// concurrently for one operation; only one of several verdicts counts. An error means [Unknown], and goes to the observer. With
// nil, duplicates get 409 uncertain until the record is forgotten.
func Uncertain(reconcile func(ctx context.Context, u Uncertainty) (Verdict, error)) Recovery {
	return Recovery{uncertain: true, reconcile: reconcile}
}

// Uncertainty describes an abandoned run for the function of [Uncertain].
type Uncertainty struct {
	// Key is the operation's key.
	Key Key
	// Attempt is the number of the abandoned run.
	Attempt uint64
	// Request is the duplicate, valid only during the call. Nil for a [Task].
	Request *Request
}

// Verdict is what the function of [Uncertain] has found out. The zero Verdict is [Unknown].
type Verdict struct {
	kind     verdictKind
	response *Response
	value    []byte
}

type verdictKind uint8

const (
	verdictUnknown verdictKind = iota
	verdictRunAgain
	verdictFinished
)

// Unknown says that the outcome is not known yet. The duplicate gets 409 uncertain.
func Unknown() Verdict { return Verdict{} }

// RunAgain says that the abandoned run had no effect. The duplicate takes the operation over.
func RunAgain() Verdict { return Verdict{kind: verdictRunAgain} }

// Finished says that the abandoned run took effect, and with which result. The result is stored and replayed. It is the response of
// a request, or the value of a [Task] as [Do] would have stored it (the bytes if its function returns []byte, otherwise JSON).
func Finished[T *Response | []byte](result T) Verdict {
	v := Verdict{kind: verdictFinished}
	switch result := any(result).(type) {
	case *Response:
		v.response = result
	case []byte:
		v.value = result
	}
	return v
}

// FailedByStatus reports whether the status means "not done, try again": 500 and above, 408, 425 and
// 429 (RFC 9110, RFC 8470, RFC 6585), 499 (the client has gone), and every 4xx with a Retry-After. It
// is the default of [Policy.Failed] for keys that the client has chosen.
func FailedByStatus(r *Response) bool {
	switch r.Status {
	case 408, 425, 429, 499:
		return true
	}
	return r.Status >= 500 || r.Status >= 400 && r.Get("Retry-After") != ""
}

// FailedByAnyError reports whether the status is 400 or above. It is the default of [Policy.Failed] for
// keys made of parameters and for tokens.
func FailedByAnyError(r *Response) bool { return r.Status >= 400 }

// failedBySender reports whether a sender of webhooks takes the status for a failure, and sends the event again. It is the default
// of [Policy.Failed] for a [SignedEvent].
func failedBySender(r *Response) bool { return !isSuccess(r) }

func isSuccess(r *Response) bool { return r.Status >= 200 && r.Status < 300 }

// Digest is the digest algorithm for parameters: MD5, which is the zero Digest, or [SHA256]. A digest tells parameters
// apart; it does not authenticate them.
type Digest = canon.Algorithm

// SHA256 is the [Digest] of that name (FIPS 180-4).
const SHA256 = canon.SHA256
