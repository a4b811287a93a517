// Package codes has the codes of refusals. A refusal is an answer without a run and without a stored response. Its code says why. On
// the wire the code is the member "code" of the body and the header field Idempotency-Refused; in Go it is core.Refusal.Code.
// docs/problems.md explains each code.
package codes

import "net/http"

// Code is the reason of a refusal. Codes are stable: clients may branch on them. A Code is an error, so that code can branch on
// errors.Is(err, codes.KeyReused).
type Code string

// Error returns the code.
func (c Code) Error() string { return string(c) }

// Status returns the HTTP status of a refusal with the code; 500 if the code is unknown.
func (c Code) Status() int {
	if p, ok := particulars[c]; ok {
		return p.status
	}
	return http.StatusInternalServerError
}

// Type returns the problem type URI (RFC 9457, section 3.1.1). It is stable, and is the address of a page that explains the code.
func (c Code) Type() string {
	return "https://github.com/idem-go/idem/blob/main/docs/problems.md#" + string(c)
}

// Title returns a short description of the code (RFC 9457, section 3.1.3), or "" if it is unknown.
func (c Code) Title() string { return particulars[c].title }

// Detail returns a sentence for people (RFC 9457, section 3.1.4), or "" if the code is unknown.
func (c Code) Detail() string { return particulars[c].detail }

// The codes, each with its status.
const (
	InProgress        Code = "in_progress"        // 409: the operation is running
	Duplicate         Code = "duplicate"          // 409: the operation has been done
	ResultUnavailable Code = "result_unavailable" // 409: done, but its response is not available
	Uncertain         Code = "uncertain"          // 409: started, and it is not known whether it took effect
	KeyReused         Code = "key_reused"         // 422: the key belongs to other parameters
	KeyExpired        Code = "key_expired"        // 410: the result of the operation under the key is no longer kept
	KeyMissing        Code = "key_missing"        // 400: the request has no key
	KeyInvalid        Code = "key_invalid"        // 400: the key is malformed, sent twice or too long
	TokenMissing      Code = "token_missing"      // 400: the request has no one-shot token
	TokenInvalid      Code = "token_invalid"      // 403: the token is malformed, forged, or issued for another caller or purpose
	TokenExpired      Code = "token_expired"      // 410: the token is too old for a first use
	UserMissing       Code = "user_missing"       // 400: the request does not identify its user
	BodyUnreadable    Code = "body_unreadable"    // 400: the body could not be read completely
	BodyTooLarge      Code = "body_too_large"     // 413: the body is over the limit
	BodyConsumed      Code = "body_consumed"      // 500: outer middleware has read the body
	NotAuthorized     Code = "not_authorized"     // 403: the stored response may not be shown to the caller
	RateLimited       Code = "rate_limited"       // 429: too many requests; nothing was counted or carried out
	StoreUnavailable  Code = "store_unavailable"  // 503: the store cannot be reached; the handler did not run
	ShuttingDown      Code = "shutting_down"      // 503: the instance starts no more runs, or has ended this one
	Unfinished        Code = "unfinished"         // 503: the handler has given up without an answer
	StoreNotShared    Code = "store_not_shared"   // 500: several processes that do not share a store
	GuardConflict     Code = "guard_conflict"     // 500: another guard has claimed the same key for this request
	// 500: the context that a handler has passed on belongs to no run, or to one of another store
	NoRun Code = "no_run"
)

var particulars = map[Code]struct {
	status        int
	title, detail string
}{
	InProgress: {http.StatusConflict, "Operation in progress",
		"The same operation is being carried out. Try again later to get its result."},
	Duplicate:         {http.StatusConflict, "Duplicate operation", "This operation has already been carried out."},
	ResultUnavailable: {http.StatusConflict, "Result unavailable", "This operation has already run, but its response is not available."},
	Uncertain: {http.StatusConflict, "Outcome uncertain",
		"An earlier attempt at this operation failed or did not finish, and it is not known whether it took effect."},
	KeyReused: {http.StatusUnprocessableEntity, "Idempotency key reused", "This idempotency key was used with other parameters."},
	KeyExpired: {http.StatusGone, "Idempotency key expired",
		"This idempotency key was used for an operation whose result is no longer kept. A new operation needs a new key."},
	KeyMissing: {http.StatusBadRequest, "Idempotency key missing", "This operation needs an idempotency key."},
	KeyInvalid: {http.StatusBadRequest, "Idempotency key invalid",
		"The idempotency key must be sent once, as one string or token of 1 to 255 bytes."},
	TokenMissing:   {http.StatusBadRequest, "Token missing", "This operation needs a one-shot token."},
	TokenInvalid:   {http.StatusForbidden, "Token invalid", "The one-shot token was not issued for this caller and this operation."},
	TokenExpired:   {http.StatusGone, "Token expired", "The one-shot token is too old to be used for the first time. Ask for a new one."},
	UserMissing:    {http.StatusBadRequest, "User missing", "The request does not identify its user."},
	BodyUnreadable: {http.StatusBadRequest, "Body unreadable", "The request body could not be read completely."},
	BodyTooLarge:   {http.StatusRequestEntityTooLarge, "Body too large", "The request body is over the limit."},
	BodyConsumed: {http.StatusInternalServerError, "Body consumed",
		"The service read the request body before it could check for a duplicate. Nothing was carried out."},
	NotAuthorized: {http.StatusForbidden, "Not authorized", "This caller may not see the stored result."},
	RateLimited:   {http.StatusTooManyRequests, "Rate limited", "Too many requests. Try again later."},
	StoreUnavailable: {http.StatusServiceUnavailable, "Store unavailable",
		"The operation was not carried out, because the service cannot recognise duplicates at the moment. Try again later."},
	ShuttingDown: {http.StatusServiceUnavailable, "Shutting down",
		"This instance of the service is shutting down. Try again: another instance will answer."},
	Unfinished: {http.StatusServiceUnavailable, "Operation unfinished",
		"The operation was started, but stopped before it had an answer. Try again."},
	StoreNotShared: {http.StatusInternalServerError, "Store not shared",
		"The service runs as several processes that do not share a store. Nothing was carried out."},
	GuardConflict: {http.StatusInternalServerError, "Conflicting guards",
		"Two policies of the service claim the same operation. Nothing was carried out."},
	NoRun: {http.StatusInternalServerError, "No run",
		"The service could not tell which operation its own call belongs to. The call was not carried out."},
}
