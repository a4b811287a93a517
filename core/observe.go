package core

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// Kind says what an [Event] is about.
type Kind uint8

// The kinds of events. Each run has one Started, and at its end exactly one of Completed, Released, RunAbandoned, RunLost and
// RunUnfinished, which says what became of its record.
const (
	// Started: the claim was acquired, and the operation runs now. Takeover says whether it was taken over.
	Started Kind = iota + 1
	// Completed: the run has ended and its record was completed. Its result is kept, but without the response if Err is
	// [store.ErrFull]. Any other Err of a run that has not Failed describes a problem of the record: its value would not be
	// replayed unchanged ([Do]), or the store has failed although the record is there.
	Completed
	// Released: the run has ended and its record was released, or kept for the next attempt ([Run.Derive]): the next request runs.
	Released
	// RunAbandoned: the run has ended and its record was abandoned: it may have taken effect.
	RunAbandoned
	// RunLost: the run has ended, but had already lost its claim (see LeaseLost). The record was not
	// changed.
	RunLost
	// RunUnfinished: the run has ended, but its record could not be completed, released or abandoned,
	// because the store failed with Err until the engine gave up, or because the handler may still run
	// ([adapter.RunsOn]). The record stays running until its lease passes.
	RunUnfinished
	// LeaseLost: the claim was lost while the operation was running. The run's context has ended.
	LeaseLost
	// RenewFailed: renewing a lease failed with Err. It is tried again.
	RenewFailed
	// Replayed: a duplicate was answered with the stored result.
	Replayed
	// Refused: a request was answered with the refusal Code.
	Refused
	// Passed: a request without a key ran unprotected, as the policy allows ([Optional]).
	Passed
	// Unprotected: the store failed with Err, and the operation runs without a claim, because the
	// policy says FailOpen.
	Unprotected
	// StoreIsLocal: the engine has an in-process store, which forgets everything at a restart and
	// knows nothing of other instances. [New] reports it once.
	StoreIsLocal
	// Unsettled: the run has ended, and its caller gets its answer, although the store has not taken the record in time. Err says
	// why. The engine keeps trying, and the ending event follows, which is Late.
	Unsettled
	// KeyIgnored: the request has an Idempotency-Key that the policy does not read: its parameters or its token decide. A guard
	// reports it once for each route. See [Header], and [OrParams].
	KeyIgnored
	// Operated: an operator has released, settled or forgotten an operation ([github.com/idem-go/idem/core/operations]). Err says
	// why it failed, if it did.
	Operated
)

var kindNames = [...]string{"invalid", "started", "completed", "released", "abandoned", "lost", "unfinished",
	"lease lost", "renewal failed", "replayed", "refused", "passed", "unprotected", "store is local", "unsettled", "key ignored",
	"operated"}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}

// Event is one thing that happened to an operation.
type Event struct {
	Kind Kind
	// Policy is the policy's name. Route is the request's method and route pattern. If no pattern is known, it is the one under
	// which the guard is mounted. It is never a path as sent.
	Policy, Route string
	// Key is zero if the request was refused before it had one.
	Key Key
	// ID is the operation's id, see [Run.ID]; zero if the event is about no record.
	ID store.ID
	// Remark is the remark of the record behind a Replayed or Refused, see [Config.Remark].
	Remark string
	// Attempt is the number of the run; 0 if the event is about no run.
	Attempt uint64
	// Takeover says that a Started run has taken over an abandoned one.
	Takeover bool
	// Status is the response's status, 0 if there is none. For a refusal it is [Refusal].Status, whatever [Config.Refuse] makes of
	// it.
	Status int
	// Code is set when a request was refused.
	Code codes.Code
	// Elapsed is the time since the claim was requested, for events of a run after Started.
	Elapsed time.Duration
	// Waited is how long the request waited for another run of the operation ([Wait]) before it was Started, Replayed, Refused or
	// Unprotected.
	Waited time.Duration
	// Failed says that the run has failed; Panicked, that it ended with a panic or
	// runtime.Goexit, which goes on.
	Failed, Panicked bool
	// Late says that the run's caller already had its answer before this ending event: an Unsettled came first. Elapsed is the same
	// in both.
	Late bool
	// Action, Actor and Reason are what an operator did, who it was, and why. They are set if the event is Operated.
	Action, Actor, Reason string
	// Err is the error behind the event, if any: of the handler, possibly in an [adapter.ErrUnrendered], of the store, or of a
	// hook. It may contain whatever they put into it.
	Err error
}

// alarming reports whether a refusal shows a fault of the service, not of the request.
func alarming(c codes.Code) bool { return c != "" && c.Status() >= 500 && c != codes.ShuttingDown }

// Observers returns an observer for [Config.Observe] that calls each of observers, in their order. Nil observers are left out. If
// none is left, it returns nil.
func Observers(observers ...func(context.Context, Event)) func(context.Context, Event) {
	observers = slices.DeleteFunc(slices.Clone(observers), func(o func(context.Context, Event)) bool { return o == nil })
	switch len(observers) {
	case 0:
		return nil
	case 1:
		return observers[0]
	}
	return func(ctx context.Context, e Event) {
		for _, o := range observers {
			o(ctx, e)
		}
	}
}

// LogEvents returns an observer for [Config.Observe] that logs to logger. It logs as warnings: a takeover; a lease, record or
// result that could not be kept; a record that is not settled yet ([Unsettled]); a panic; an uncertain outcome; a key that is
// ignored; and a refusal that is the service's own fault, including [codes.NoRun] from a handler and [ErrSealed]. Refusals of
// clients (4xx) are logged at the level refusals. A local store and a record that was settled late are logged at the info level,
// everything else at the debug level. Raw keys are not logged.
func LogEvents(logger *slog.Logger, refusals slog.Level) func(context.Context, Event) {
	return func(ctx context.Context, e Event) {
		level, what := e.level(refusals), e.Kind.String()
		if e.Kind == Started && e.Takeover {
			what = "takeover"
		}
		if logger.Enabled(ctx, level) {
			logger.LogAttrs(ctx, level, "idem: "+what, e.appendAttrs(make([]slog.Attr, 0, 16))...)
		}
	}
}

// level is that at which [LogEvents] logs e.
func (e *Event) level(refusals slog.Level) slog.Level {
	level := slog.LevelDebug
	switch e.Kind {
	case Unprotected, LeaseLost, RunLost, RunAbandoned, RenewFailed, RunUnfinished, Unsettled, KeyIgnored, Operated:
		return slog.LevelWarn
	case Started:
		if e.Takeover {
			return slog.LevelWarn
		}
	case Completed:
		if e.Err != nil && !e.Failed {
			return slog.LevelWarn
		}
	case Refused:
		if e.Status < 500 {
			level = refusals
		}
	case StoreIsLocal:
		level = slog.LevelInfo
	}
	switch {
	case e.tellsOfFault():
		return slog.LevelWarn
	case e.Late:
		return max(level, slog.LevelInfo)
	}
	return level
}

// tellsOfFault reports whether e, whatever its kind, needs somebody's attention.
func (e *Event) tellsOfFault() bool {
	// A user that is not logged in needs no warning; a user source that does not understand what it finds is a fault.
	misconfigured := e.Code == codes.UserMissing && e.Err != nil && !errors.Is(e.Err, ErrNoUser)
	if e.Panicked || misconfigured || e.Code == codes.Uncertain || alarming(e.Code) {
		return true
	}
	for _, fault := range [...]error{store.ErrFull, ErrSealed, codes.NoRun, adapter.ErrUnrendered} {
		if errors.Is(e.Err, fault) {
			return true
		}
	}
	return false
}

// appendAttrs appends what [LogEvents] logs of e.
func (e *Event) appendAttrs(attrs []slog.Attr) []slog.Attr {
	if e.Kind != StoreIsLocal {
		attrs = append(attrs, slog.String("policy", e.Policy), slog.String("route", e.Route))
	}
	if e.Key != (Key{}) {
		attrs = append(attrs, slog.String("key", e.Key.String()))
	}
	if e.ID != (store.ID{}) {
		attrs = append(attrs, slog.String("operation", e.ID.String()))
	}
	if e.Attempt > 0 {
		attrs = append(attrs, slog.Uint64("attempt", e.Attempt))
	}
	if e.Status > 0 {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	if e.Code != "" {
		attrs = append(attrs, slog.String("code", string(e.Code)))
	}
	if e.Action != "" {
		attrs = append(attrs, slog.String("action", e.Action), slog.String("actor", e.Actor), slog.String("reason", e.Reason))
	}
	if e.Elapsed > 0 {
		attrs = append(attrs, slog.Duration("elapsed", e.Elapsed))
	}
	if e.Waited > 0 {
		attrs = append(attrs, slog.Duration("waited", e.Waited))
	}
	if e.Failed {
		attrs = append(attrs, slog.Bool("failed", true))
	}
	if e.Late {
		attrs = append(attrs, slog.Bool("late", true))
	}
	if e.Panicked {
		attrs = append(attrs, slog.Bool("panicked", true))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Err))
	}
	return attrs
}
