package sign

import (
	"errors"
	"fmt"
)

// Code names the reason of a refusal on the wire. Codes are stable: clients may branch on
// them. A Code is an error, so that an [Error] can be told by it:
// errors.Is(err, sign.CodeReplayed).
type Code string

// The codes, each with its status.
const (
	CodeMissing          Code = "missing"           // 401: there is no signature, or a part of it is not there
	CodeInvalid          Code = "invalid"           // 401: the signature is not a known key's signature of this message
	CodeExpired          Code = "expired"           // 401: the timestamp is too old
	CodeNotYetValid      Code = "not_yet_valid"     // 401: the timestamp is too far in the future
	CodeReplayed         Code = "replayed"          // 401: the nonce has been used
	CodeMalformed        Code = "malformed"         // 400: a part of the signature has not the right form
	CodeDuplicateHeader  Code = "duplicate_header"  // 400: a field that counts was sent more than once
	CodeBodyTooLarge     Code = "body_too_large"    // 413: the body is over the limit
	CodeRateLimited      Code = "rate_limited"      // 429: as many nonces of the key's owner are remembered as may be
	CodeStoreUnavailable Code = "store_unavailable" // 503: nonces or keys cannot be looked up
)

// Error returns the code.
func (c Code) Error() string { return string(c) }

func (c Code) kind() *Error { return &Error{Code: c} }

// Reason tells apart what is [CodeInvalid] outside. It is an error, so that an [Error] can be told
// by it, and is itself errors.Is CodeInvalid. A scheme may have reasons of its own.
type Reason string

// The reasons.
const (
	ReasonUnknownKey     Reason = "unknown_key"
	ReasonRevokedKey     Reason = "revoked_key"
	ReasonKeyNotYetValid Reason = "key_not_yet_valid"
	ReasonKeyExpired     Reason = "key_expired"
	ReasonWrongAlgorithm Reason = "wrong_algorithm"
	ReasonUncovered      Reason = "uncovered"
	ReasonDigestMismatch Reason = "digest_mismatch"
	ReasonBadSignature   Reason = "bad_signature"
)

// Error returns the reason.
func (r Reason) Error() string { return string(r) }

// Is reports whether target is [CodeInvalid].
func (r Reason) Is(target error) bool { return target == CodeInvalid }

func (r Reason) kind() *Error { return &Error{Code: CodeInvalid, Reason: r} }

// Kind is what an [Error] can be told by: a [Code] or a [Reason]. Schemes, key sources and
// [Source] may return one as it is, or with more to say by [Errorf].
type Kind interface {
	error
	kind() *Error
}

// Error is why a message was refused. Code is what the client is told; Reason and
// Detail are for logs. An *Error is errors.Is its Code, its Reason, and another *Error with the same
// code and, unless that one has none, the same reason.
type Error struct {
	// Code is the reason, as far as it goes out.
	Code Code
	// Reason tells apart what looks the same outside. Empty: the code says it all.
	Reason Reason
	// Detail says more, for people. It holds no secret, no expected signature and nothing
	// of the body.
	Detail string

	cause      error
	retryAfter int64 // when another try makes sense, in seconds; 0: after one
}

// Errorf returns an error of a kind with a detail. A %w in format is its cause.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := kind.kind()
	e.Detail, e.cause = err.Error(), errors.Unwrap(err)
	return e
}

// Error returns code, reason and detail. A nil *Error that was made an error of is one without a code: a fault of
// who returned it, which refuses.
func (e *Error) Error() string {
	if e == nil {
		return "sign: a nil *Error was returned as an error"
	}
	s := "sign: " + string(e.Code)
	if e.Reason != "" {
		s += " (" + string(e.Reason) + ")"
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns what lies behind: the store's error, say. It may be nil.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.cause
}

// Is reports whether target is the error's code or reason, or an *Error with the same code and, unless
// it has none, the same reason.
func (e *Error) Is(target error) bool {
	if e == nil {
		return false
	}
	if t, ok := target.(*Error); ok && t != nil {
		return t.Code == e.Code && (t.Reason == "" || t.Reason == e.Reason)
	}
	return target == e.Code || e.Reason != "" && target == e.Reason
}

// asError returns err, which a scheme, a key source or a [Source] has made, as an *Error that is nobody
// else's. One that is none is a fault of theirs, and refuses.
func asError(err error) *Error {
	if e := known(err); e != nil {
		return e
	}
	return &Error{Code: CodeInvalid, Detail: fmt.Sprint(err), cause: err}
}

// known returns a copy of the *Error that err is, or what err's kind makes of it; nil: it has none.
func known(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		if e == nil {
			return nil
		}
		own := *e
		return &own
	}
	k, ok := errors.AsType[Kind](err)
	if !ok {
		return nil
	}
	e := k.kind()
	if err != error(k) {
		e.Detail, e.cause = err.Error(), err
	}
	return e
}

// bodyError makes an *Error of what reading the body has met with.
func bodyError(err error) error {
	if err == nil {
		return nil
	}
	if e := known(err); e != nil {
		return e
	}
	return Errorf(CodeMalformed, "the body could not be read to its end: %w", err)
}

// ConfigError is one fault of a configuration. Constructors report all faults at once
// (errors.Join).
type ConfigError struct {
	// Field is the faulty field, such as "Config.Keys".
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error returns field and problem.
func (e *ConfigError) Error() string { return "sign: " + e.Field + ": " + e.Problem }

// faults collects configuration errors. The zero value has none.
type faults struct{ errs []error }

func (f *faults) addIf(bad bool, field, format string, args ...any) {
	if bad {
		f.errs = append(f.errs, &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
}

func (f *faults) err() error { return errors.Join(f.errs...) }
