package sign

import (
	"errors"
	"fmt"
)

// Code names the reason of a refusal on the wire. Codes are stable: clients may branch on
// them.
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
	CodeStoreUnavailable Code = "store_unavailable" // 503: nonces or keys cannot be looked up
)

// Error is why a message was refused. Code is what the client is told; Reason and
// Detail are for logs. An *Error is errors.Is another one if the codes are equal, and the
// reasons too if the other one has a reason.
type Error struct {
	// Code is the reason, as far as it goes out.
	Code Code
	// Reason tells apart what looks the same outside: "unknown_key". Empty: the code
	// says it all.
	Reason string
	// Detail says more, for people. It holds no secret, no expected signature and nothing
	// of the body.
	Detail string

	cause error
}

// The errors, for errors.Is.
var (
	ErrMissing          = &Error{Code: CodeMissing}
	ErrInvalid          = &Error{Code: CodeInvalid}
	ErrExpired          = &Error{Code: CodeExpired}
	ErrNotYetValid      = &Error{Code: CodeNotYetValid}
	ErrReplayed         = &Error{Code: CodeReplayed}
	ErrMalformed        = &Error{Code: CodeMalformed}
	ErrDuplicateHeader  = &Error{Code: CodeDuplicateHeader}
	ErrBodyTooLarge     = &Error{Code: CodeBodyTooLarge}
	ErrStoreUnavailable = &Error{Code: CodeStoreUnavailable}
)

// What looks like [ErrInvalid] outside. Each of them is errors.Is ErrInvalid.
var (
	ErrUnknownKey     = &Error{Code: CodeInvalid, Reason: "unknown_key"}
	ErrRevokedKey     = &Error{Code: CodeInvalid, Reason: "revoked_key"}
	ErrKeyNotYetValid = &Error{Code: CodeInvalid, Reason: "key_not_yet_valid"}
	ErrKeyExpired     = &Error{Code: CodeInvalid, Reason: "key_expired"}
	ErrWrongAlgorithm = &Error{Code: CodeInvalid, Reason: "wrong_algorithm"}
	ErrUncovered      = &Error{Code: CodeInvalid, Reason: "uncovered"}
	ErrDigestMismatch = &Error{Code: CodeInvalid, Reason: "digest_mismatch"}
	ErrBadSignature   = &Error{Code: CodeInvalid, Reason: "bad_signature"}
)

// Errorf returns kind with a detail. A %w in format is the error's cause.
func Errorf(kind *Error, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: kind.Code, Reason: kind.Reason, Detail: err.Error(), cause: errors.Unwrap(err)}
}

// Error returns code, reason and detail.
func (e *Error) Error() string {
	s := "sign: " + string(e.Code)
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns what lies behind: the store's error, say. It may be nil.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an *Error with the same code and, unless it has none, the
// same reason.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Reason == "" || t.Reason == e.Reason)
}

// bodyError makes an *Error of what reading the body has met with.
func bodyError(err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*Error](err); ok && known != nil {
		return known
	}
	return Errorf(ErrMalformed, "the body could not be read to its end: %w", err)
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
