package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// Config configures an [Engine]. The zero Config has the in-process store, no user source (each policy must then name one), and no
// observer.
type Config struct {
	// Store keeps the records. Nil: a new in-process store with default bounds.
	Store store.Store

	// User tells callers apart for policies that name no source of their own.
	//
	// Under such a policy the user of a request from a verified caller ([WithCaller]) is that caller. If User also finds a user,
	// the two together are the user, so that the users of one caller stay apart. Addresses (UserFromRemoteAddr, UserFromRealIP) and
	// SharedByAllCallers add nothing to a verified caller. Set [UserFromCaller] if all routes are signed.
	User UserSource

	// Service names the service among all that share the store. Engines of one service answer for each other, and for no others.
	// Stored keys, including those of nonces, begin with "idem:<service>:". 1 to 64 ASCII letters, digits and '-'. Service is
	// required unless the store is an in-process one ([store.Capabilities].InProcess). There it may be empty, and keys begin with
	// "idem:". An engine with another name is another service, and knows nothing of the existing records.
	Service string

	// LegacyPrefix replaces Service in a deployment that keeps the records of 0.1.0: every stored key begins with exactly this
	// text. It is the former Config.Prefix, or "idem:", its former default. At most 128 bytes, without blanks and control
	// characters. A second service on the same store needs a Service, or a prefix of its own.
	LegacyPrefix string

	// Secrets are the keys from which [Run.Derive] makes keys for calls downstream, newest first. All processes of a service need
	// the same secrets. An operation continues with the secret that was the first when it began, which its record names. If the
	// record is lost, it uses the newest. Without Secrets, Derive returns an error.
	//
	// To rotate, append the new secret. When all processes have it, move it to the front. Remove the old one when no operation that
	// began with it can continue: after the longest [Record].RememberAbandoned. A client that then uses its key again, after its
	// record was lost or forgotten, gets other derived keys.
	Secrets []Secret

	// Seal encrypts answers, values, steps and remarks in the store, and keys the digests of parameters, so that nobody can find
	// parameters by trying. Nil: all of it is stored in clear text. Setting Seal changes the keys of operations: docs/records.md
	// says in which order to do it.
	Seal *Seal

	// StoreTimeout is how long one call of the store may take. Zero: 2 s. Calls of a local store ([store.Capabilities].Local) have
	// no deadline. For such a store it only bounds how long [Engine.Drain] waits for the runs whose contexts it has ended.
	StoreTimeout time.Duration

	// UnsettledLimit is how many bytes unsettled runs ([Unsettled]) may hold. Each counts as its result and 1 KiB. A run that does
	// not fit is given up after StoreTimeout: its record stays running until its lease passes. Zero: 64 MiB.
	UnsettledLimit int64

	// Remark returns a note for people who look at the record of an operation that begins with ctx: a trace id, an order number. It
	// is cut after 255 bytes; with Seal, after 156 less the length of the key's name. Nil: the trace id of the request's
	// traceparent field, if it has one. It is called concurrently, before the claim.
	Remark func(ctx context.Context) string

	// Observe gets the events. It is called synchronously and concurrently, and must return quickly. It must not panic: events of
	// renewals and of late settlements come from goroutines of the engine, where a panic ends the process. Nil: events are dropped.
	// See [LogEvents].
	Observe func(ctx context.Context, e Event)

	// ObserveStore is called after each call of the store, with the call's name, how long it took, and its error. The calls are
	// "acquire", "renew", "complete", "release", "abandon", "checkpoint" (a [Step]) and "fail" (a run that is kept for the next
	// attempt). The error is nil, [store.ErrLost], [store.ErrFull], or a failure. Each try of a repeated call counts, and so do the
	// calls of [Engine.Nonces]. Calls of operators do not count, nor what is recalled ([store.Capabilities].Recall). ObserveStore
	// is called like Observe, and must not panic: a claim made by that call would stay until its lease passes. Nil: nothing is
	// measured.
	ObserveStore func(ctx context.Context, call string, took time.Duration, err error)

	// Refuse makes the answer of a refusal, for services with their own error format. They may answer 200 to everything, 409 where
	// 422 is the default, or show a page to a browser. It may change r. r.Request is never nil, and is valid only during the call.
	// A Status of zero in the answer means r.Status. A nil answer, or a nil Refuse, means application/problem+json (RFC 9457).
	// Every refusal gets [RefusedHeader] and Cache-Control: no-store, whatever Refuse returns, and Retry-After if r.RetryAfter is
	// set and Refuse sets none. Only the Cache-Control "private, no-cache" is left as it is: a page needs it for a browser's Back.
	// Refuse is called concurrently.
	Refuse func(ctx context.Context, r *Refusal) *Response
}

const defaultStoreTimeout = 2 * time.Second

// prefix returns what stored keys begin with.
func (c *Config) prefix(f *faults, inProcess bool) string {
	legacy := c.LegacyPrefix
	f.addIf(len(legacy) > 128, "LegacyPrefix", "has %d bytes; 128 are allowed", len(legacy))
	f.addIf(strings.ContainsFunc(legacy, func(r rune) bool { return r <= ' ' || r == 0x7f }), "LegacyPrefix",
		"holds a blank or a control character: %q; a key can be typed", legacy)
	switch {
	case c.Service == "" && legacy != "":
		return legacy
	case c.Service == "":
		f.addIf(!inProcess, "Service", "is empty, and the store is not in-process: two services on one store would answer for each other "+
			"(LegacyPrefix keeps the records of 0.1.0)")
		return "idem:"
	}
	f.addIf(legacy != "", "LegacyPrefix", "is set together with Service, but stored keys have one prefix; leave one of the two out")
	prefix, ok := canon.ServicePrefix(c.Service)
	f.addIf(!ok, "Service", "is %q; it must have 1 to 64 letters (a-z, A-Z), digits and '-'", c.Service)
	return prefix
}

// ConfigError is one fault of a [Config] or [Policy], or of a configuration in a package built on core. [New] and [Engine.Guard]
// report all faults at once. Find them with errors.As, or take the joined error apart with its Unwrap() []error method.
type ConfigError struct {
	// Field is the faulty field, such as "Policy.Lease". A field of another package begins with the package, such as
	// "amqpidem.Config.Task".
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

// addSecret reports what is wrong with a secret by itself. which says which one of the field it is.
func (f *faults) addSecret(field, which string, secret []byte) {
	f.addIf(len(secret) < minSecret, field, "%shas %d bytes; at least %d are needed", which, len(secret), minSecret)
	f.addIf(len(secret) >= minSecret && bytes.Count(secret, secret[:1]) == len(secret), field, "%sis one byte repeated", which)
}

const minSecret = 32 // bytes

func (f *faults) err() error { return errors.Join(f.errs...) }

func quote(s string) string { return strconv.Quote(s) }
