package core

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Code names the reason of a refusal. Codes are stable: clients may branch on them.
type Code string

// The codes, each with its status.
const (
	CodeInProgress        Code = "in_progress"        // 409: the operation is running
	CodeDuplicate         Code = "duplicate"          // 409: the operation has been done
	CodeResultUnavailable Code = "result_unavailable" // 409: done, but its response was not stored
	CodeUncertain         Code = "uncertain"          // 409: begun, and nobody knows whether it was done
	CodeKeyReused         Code = "key_reused"         // 422: the key belongs to other parameters
	CodeKeyMissing        Code = "key_missing"        // 400: the request has no key
	CodeKeyInvalid        Code = "key_invalid"        // 400: the key is malformed, sent twice or too long
	CodeUserMissing       Code = "user_missing"       // 400: the request does not say who sends it
	CodeBodyUnreadable    Code = "body_unreadable"    // 400: the body could not be read to its end
	CodeBodyTooLarge      Code = "body_too_large"     // 413: the body is over the limit
	CodeNotAuthorized     Code = "not_authorized"     // 403: the stored response may not be shown to the caller
	CodeStoreUnavailable  Code = "store_unavailable"  // 503: the store cannot be reached; the handler did not run
)

// Refusal is an answer given without running the operation and without a stored
// response. It is the error that [Engine.Do] returns, and what [Config.RefusalBody]
// gets to render. A *Refusal is errors.Is another one if their codes are equal.
type Refusal struct {
	// Code is the stable reason.
	Code Code
	// Status is the HTTP status code.
	Status int
	// Detail is a sentence for people. It holds nothing from the request or the store.
	Detail string
	// RetryAfter is when another try makes sense. Zero: never, or nobody knows. On the
	// wire it is rounded up to whole seconds.
	RetryAfter time.Duration

	cause error
}

// The refusals without particulars, for errors.Is.
var (
	ErrInProgress        = refusal(CodeInProgress)
	ErrDuplicate         = refusal(CodeDuplicate)
	ErrResultUnavailable = refusal(CodeResultUnavailable)
	ErrUncertain         = refusal(CodeUncertain)
	ErrKeyReused         = refusal(CodeKeyReused)
	ErrKeyMissing        = refusal(CodeKeyMissing)
	ErrKeyInvalid        = refusal(CodeKeyInvalid)
	ErrStoreUnavailable  = refusal(CodeStoreUnavailable)
)

// Error returns the code and the detail.
func (r *Refusal) Error() string {
	if r.cause != nil {
		return fmt.Sprintf("idem: %s: %s (%v)", r.Code, r.Detail, r.cause)
	}
	return fmt.Sprintf("idem: %s: %s", r.Code, r.Detail)
}

// Unwrap returns what lies behind the refusal: the store's error, say. It may be nil.
func (r *Refusal) Unwrap() error { return r.cause }

// Is reports whether target is a refusal with the same code.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Code == r.Code
}

// Type returns the problem type URI (RFC 9457, section 3.1.1). It is stable, and leads to
// the code's explanation.
func (r *Refusal) Type() string { return problemTypes + string(r.Code) }

// Title returns the short text that goes with the code (RFC 9457, section 3.1.3).
func (r *Refusal) Title() string { return particulars[r.Code].title }

const problemTypes = "https://github.com/idem-go/idem/blob/main/README.md#"

var particulars = map[Code]struct {
	status        int
	title, detail string
}{
	CodeInProgress:        {http.StatusConflict, "Operation in progress", "The same operation is being carried out. Try again later to get its result."},
	CodeDuplicate:         {http.StatusConflict, "Duplicate operation", "This operation has already been carried out."},
	CodeResultUnavailable: {http.StatusConflict, "Result unavailable", "This operation has already been carried out; its response was not stored."},
	CodeUncertain:         {http.StatusConflict, "Outcome uncertain", "An earlier attempt at this operation did not finish, and it is not known whether it took effect."},
	CodeKeyReused:         {http.StatusUnprocessableEntity, "Idempotency key reused", "This idempotency key was used with other parameters."},
	CodeKeyMissing:        {http.StatusBadRequest, "Idempotency key missing", "This operation needs an idempotency key."},
	CodeKeyInvalid:        {http.StatusBadRequest, "Idempotency key invalid", "The idempotency key must be sent once, as one string or token of 1 to 255 bytes."},
	CodeUserMissing:       {http.StatusBadRequest, "User missing", "The request does not say who sends it."},
	CodeBodyUnreadable:    {http.StatusBadRequest, "Body unreadable", "The request body could not be read to its end."},
	CodeBodyTooLarge:      {http.StatusRequestEntityTooLarge, "Body too large", "The request body is over the limit."},
	CodeNotAuthorized:     {http.StatusForbidden, "Not authorized", "The stored result may not be shown to this caller."},
	CodeStoreUnavailable:  {http.StatusServiceUnavailable, "Store unavailable", "The operation was not carried out, because it could not be protected against being repeated."},
}

func refusal(c Code) *Refusal {
	p := particulars[c]
	return &Refusal{Code: c, Status: p.status, Detail: p.detail}
}

// problem is the body of a refusal (RFC 9457, section 3).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   Code   `json:"code"`
}

// response renders the refusal for the wire.
func (r *Refusal) response(body func(*Refusal) (string, []byte)) *Response {
	resp := &Response{Status: r.Status}
	var contentType string
	if body != nil {
		own := *r // not the package's: the function may change it
		contentType, resp.Body = body(&own)
	} else {
		contentType = "application/problem+json"
		resp.Body, _ = json.Marshal(problem{r.Type(), r.Title(), r.Status, r.Detail, r.Code}) // strings and an int: cannot fail
	}
	resp.Header = append(resp.Header,
		Field{"Cache-Control", "no-store"},
		Field{"Content-Type", contentType})
	if r.RetryAfter > 0 {
		seconds := int64((r.RetryAfter + time.Second - 1) / time.Second)
		resp.Header = append(resp.Header, Field{"Retry-After", strconv.FormatInt(seconds, 10)})
	}
	return resp
}
