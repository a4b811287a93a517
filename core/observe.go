package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"
)

// Key is the identity of an operation, as stored. It may name a user, so it prints as a
// short digest; convert it to string to get it whole.
type Key string

// String returns the first 16 digits of the key's SHA-256 digest.
func (k Key) String() string {
	sum := sha256.Sum256([]byte(k))
	return hex.EncodeToString(sum[:8])
}

// GoString is [Key.String], so that %#v does not print the raw key either.
func (k Key) GoString() string { return k.String() }

// LogValue implements [slog.LogValuer].
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText implements [encoding.TextMarshaler], so that a key logged as JSON is a
// digest as well.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Kind says what an [Event] is about.
type Kind uint8

// The kinds of events.
const (
	// Started: the claim was acquired; the operation runs now. Attempt is higher than 1
	// if it was taken over.
	Started Kind = iota + 1
	// Finished: the run has ended and its result stands; without its response if Err is
	// [ErrStoreFull].
	Finished
	// Released: the run has ended and its record was released.
	Released
	// Panicked: the run has ended with a panic (or runtime.Goexit), which goes on.
	Panicked
	// Replayed: a duplicate was answered with the stored result.
	Replayed
	// Refused: a request was answered with the refusal Code.
	Refused
	// Unprotected: the store could not be reached, and the operation ran all the same,
	// because the policy says FailOpen. Err is the store's.
	Unprotected
	// LeaseLost: the claim was lost while the operation was running; its context has been
	// cancelled.
	LeaseLost
	// StoreFailed: renewing, completing or releasing failed with Err. The record stands
	// as it was, until its lease ends.
	StoreFailed
	// Unrendered: the handler returned Err, and no response to it was seen; the run
	// counts as failed.
	Unrendered
)

var kindNames = [...]string{"invalid", "started", "finished", "released", "panicked", "replayed",
	"refused", "unprotected", "lease lost", "store failed", "unrendered"}

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
	// Policy is the policy's name, Route the request's method and route pattern.
	Policy, Route string
	// Key is empty if the request was refused before it had one.
	Key Key
	// Attempt is the number of the run; 0 if none is concerned.
	Attempt uint64
	// Status is the response's, 0 if there is none.
	Status int
	// Code is set when a request was refused.
	Code Code
	// Elapsed is the time since the claim was acquired, for events that end a run.
	Elapsed time.Duration
	// Err is the error behind the event, if any. It may hold what a store or hook put
	// into it.
	Err error
}

// LogEvents returns an observer for [Config.Observe] that logs to logger: what needs
// somebody's attention as warnings, the rest at the debug level. Raw keys are not
// logged.
func LogEvents(logger *slog.Logger) func(context.Context, Event) {
	return func(ctx context.Context, e Event) {
		level := slog.LevelDebug
		switch e.Kind {
		case Unprotected, LeaseLost, StoreFailed, Unrendered, Panicked:
			level = slog.LevelWarn
		}
		if errors.Is(e.Err, ErrStoreFull) || e.Code == CodeStoreUnavailable || e.Attempt > 1 && e.Kind == Started {
			level = slog.LevelWarn
		}
		if !logger.Enabled(ctx, level) {
			return
		}
		attrs := make([]slog.Attr, 0, 8)
		attrs = append(attrs, slog.String("policy", e.Policy), slog.String("route", e.Route), slog.Any("key", e.Key))
		if e.Attempt > 0 {
			attrs = append(attrs, slog.Uint64("attempt", e.Attempt))
		}
		if e.Status > 0 {
			attrs = append(attrs, slog.Int("status", e.Status))
		}
		if e.Code != "" {
			attrs = append(attrs, slog.String("code", string(e.Code)))
		}
		if e.Elapsed > 0 {
			attrs = append(attrs, slog.Duration("elapsed", e.Elapsed))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("err", e.Err))
		}
		logger.LogAttrs(ctx, level, "idem: "+e.Kind.String(), attrs...)
	}
}
