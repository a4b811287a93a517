package sign

import (
	"errors"
	"fmt"
)

// Code is the reason for a refusal that the client sees. Codes are stable, and clients may branch on them. A Code is an
// error that an [Error] can be compared with: errors.Is(err, sign.CodeReplayed).
type Code string

// The codes, each with its HTTP status.
const (
	CodeMissing          Code = "missing"           // 401: the signature, or a part of it, is missing
	CodeInvalid          Code = "invalid"           // 401: no known key made this signature of this message
	CodeExpired          Code = "expired"           // 401: the timestamp is too old
	CodeNotYetValid      Code = "not_yet_valid"     // 401: the timestamp is too far in the future
	CodeReplayed         Code = "replayed"          // 401: the nonce has been used
	CodeMalformed        Code = "malformed"         // 400: a part of the signature is malformed
	CodeDuplicateHeader  Code = "duplicate_header"  // 400: a header field that the scheme reads was sent more than once
	CodeBodyTooLarge     Code = "body_too_large"    // 413: the body is over the limit
	CodeRateLimited      Code = "rate_limited"      // 429: the key's owner has used up the quota of nonces
	CodeStoreUnavailable Code = "store_unavailable" // 503: nonces or keys cannot be looked up
)

// Error returns the code.
func (c Code) Error() string { return string(c) }

// Reason is the finer reason behind a [Code], which is [CodeInvalid] unless it is said below. It is for logs; the client does not
// see it, unless a protocol has codes as fine ([Demands].Challenge). A Reason is an error that an [Error] can be compared with, and
// errors.Is(reason, code) is true for its code. A scheme may define its own reasons, behind CodeInvalid.
type Reason string

// The reasons.
const (
	ReasonUnknownKey     Reason = "unknown_key"       // no key has the id
	ReasonRevokedKey     Reason = "revoked_key"       // the id was revoked
	ReasonKeyNotYetValid Reason = "key_not_yet_valid" // see ValidFrom
	ReasonKeyExpired     Reason = "key_expired"       // see ValidUntil
	ReasonWrongAlgorithm Reason = "wrong_algorithm"   // the message or the scheme does not use the key's algorithm
	ReasonWrongPurpose   Reason = "wrong_purpose"     // the key is for something else, see KeyConfig.Purpose
	ReasonUncovered      Reason = "uncovered"         // a part of the message must be signed, and is not
	ReasonDigestMismatch Reason = "digest_mismatch"   // the signed digest is not that of the body
	ReasonBadSignature   Reason = "bad_signature"     // the key did not make the signature
	ReasonWrongTag       Reason = "wrong_tag"         // the signature was made for another application

	ReasonUnsigned         Reason = "unsigned"          // CodeMissing: there is no signature at all
	ReasonParameterMissing Reason = "parameter_missing" // CodeMissing: the signature lacks a parameter
	ReasonBadHeader        Reason = "bad_header"        // CodeMalformed; CodeMissing if one of the signature's fields is missing
	ReasonBadWindow        Reason = "bad_window"        // CodeMalformed: the time for which the signature is valid is none, or too long
	ReasonBadTarget        Reason = "bad_target"        // CodeMalformed, or CodeInvalid: the message is for another host, or for none
	ReasonBadBody          Reason = "bad_body"          // CodeMalformed: the body can be read in two ways
	ReasonKeysUnavailable  Reason = "keys_unavailable"  // CodeStoreUnavailable: the keys could not be looked up
)

// code returns the code that the reason is behind.
func (r Reason) code() Code {
	switch r {
	case ReasonUnsigned, ReasonParameterMissing:
		return CodeMissing
	case ReasonBadHeader, ReasonBadWindow, ReasonBadTarget, ReasonBadBody:
		return CodeMalformed
	case ReasonKeysUnavailable:
		return CodeStoreUnavailable
	}
	return CodeInvalid
}

// Error returns the reason.
func (r Reason) Error() string { return string(r) }

// Is reports whether target is the reason's code.
func (r Reason) Is(target error) bool { return target == r.code() }

// Error says why a message was refused. Compare it with a [Code] or a [Reason] by errors.Is.
type Error struct {
	// Code is the reason that the client sees.
	Code Code
	// Reason is the finer reason. It is for logs. Empty: the code says it all.
	Reason Reason
	// Detail explains the error to people. It is for logs. It contains no secret, no expected signature and no part of
	// the body. A [Verifier] cuts it to 512 bytes.
	Detail string

	cause      error
	retryAfter int64 // in seconds; zero counts as one
}

// Errorf returns an error for a [Code] or a [Reason], with a formatted Detail. Schemes, key stores and a [Source] return a Code or a
// Reason as it is, or this. why may also be an *[Error] with both. [Error.Unwrap] returns the operand of a %w. Any other why becomes
// [CodeInvalid].
func Errorf(why error, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := asError(why)
	e.Detail, e.cause = err.Error(), errors.Unwrap(err)
	return e
}

// Error returns code, reason and detail. A nil *Error in an error is a mistake of the code that returned it; the message is
// refused.
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

// Unwrap returns the cause, such as the nonce store's error, or nil.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.cause
}

// Is reports whether target is the error's code or reason, or an *Error with the same code whose reason is empty or the same.
func (e *Error) Is(target error) bool {
	if e == nil {
		return false
	}
	if t, ok := target.(*Error); ok && t != nil {
		return t.Code == e.Code && (t.Reason == "" || t.Reason == e.Reason)
	}
	return target == e.Code || e.Reason != "" && target == e.Reason
}

// asError returns an *Error of its own for an error of a scheme, a key store or a [Source]. If there is neither a code nor a reason
// in err, which is their mistake, the message is refused with CodeInvalid.
func asError(err error) *Error {
	if e := known(err); e != nil {
		return e
	}
	return &Error{Code: CodeInvalid, Detail: fmt.Sprint(err), cause: err}
}

// known returns a copy of the *Error in err, or a new one for the code or the reason in err. It returns nil if there is none.
func known(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		if e == nil {
			return nil
		}
		own := *e
		return &own
	}
	e := new(Error)
	code, isCode := errors.AsType[Code](err)
	reason, isReason := errors.AsType[Reason](err)
	switch {
	case isReason:
		e.Code, e.Reason = reason.code(), reason
	case isCode:
		e.Code = code
	default:
		return nil
	}
	if err != error(code) && err != error(reason) {
		e.Detail, e.cause = err.Error(), err
	}
	return e
}

// bodyError returns an *Error for an error of Source.ReadBody.
func bodyError(err error) error {
	if err == nil {
		return nil
	}
	if e := known(err); e != nil {
		return e
	}
	return Errorf(CodeMalformed, "the body could not be read to its end: %w", err)
}

// ConfigError is one error of a configuration. Constructors report all of them at once, joined by errors.Join.
type ConfigError struct {
	// Field is the name of the field or parameter: "Config.Keys".
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error returns field and problem.
func (e *ConfigError) Error() string { return "sign: " + e.Field + ": " + e.Problem }

// configErrors collects errors of a configuration. The zero value is empty.
type configErrors []error

func (c *configErrors) addIf(bad bool, field, format string, args ...any) {
	if bad {
		*c = append(*c, &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
}

func (c configErrors) err() error { return errors.Join(c...) }

// Must returns v, and panics if err is not nil. It is for what is fixed in the program or its tests:
//
//	key := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, secret))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
