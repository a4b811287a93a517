package core

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Code names the reason of a refusal. Codes are stable: clients may branch on them. A Code is an error,
// so that errors.Is(err, core.CodeKeyReused) tells refusals apart.
type Code string

// Error returns the code.
func (c Code) Error() string { return string(c) }

// RefusedHeader is on every refusal; its value is the [Code]. A cache or gateway must not keep a
// response that has it.
const RefusedHeader = "Idempotency-Refused"

// The codes, each with its status.
const (
	CodeInProgress        Code = "in_progress"        // 409: the operation is running
	CodeDuplicate         Code = "duplicate"          // 409: the operation has been done
	CodeResultUnavailable Code = "result_unavailable" // 409: done, but its response was not stored
	CodeUncertain         Code = "uncertain"          // 409: begun, and it is not known whether it was done
	CodeKeyReused         Code = "key_reused"         // 422: the key belongs to other parameters
	CodeKeyMissing        Code = "key_missing"        // 400: the request has no key
	CodeKeyInvalid        Code = "key_invalid"        // 400: the key is malformed, sent twice or too long
	CodeTokenMissing      Code = "token_missing"      // 400: the request has no one-shot token
	CodeTokenInvalid      Code = "token_invalid"      // 403: the token is malformed, forged, or issued for another caller or purpose
	CodeTokenExpired      Code = "token_expired"      // 410: the token is too old for a first use
	CodeUserMissing       Code = "user_missing"       // 400: the request does not say who sends it
	CodeBodyUnreadable    Code = "body_unreadable"    // 400: the body could not be read to its end
	CodeBodyTooLarge      Code = "body_too_large"     // 413: the body is over the limit
	CodeBodyConsumed      Code = "body_consumed"      // 500: a middleware in front has read the body
	CodeNotAuthorized     Code = "not_authorized"     // 403: the stored response may not be shown to the caller
	CodeRateLimited       Code = "rate_limited"       // 429: too many requests; nothing was counted or carried out
	CodeStoreUnavailable  Code = "store_unavailable"  // 503: the store cannot be reached; the handler did not run
	CodeShuttingDown      Code = "shutting_down"      // 503: the service begins no more runs, or has ended this one
	CodeUnfinished        Code = "unfinished"         // 503: the handler has given up without an answer
	CodeStoreNotShared    Code = "store_not_shared"   // 500: several processes, and each has a store of its own
	CodeGuardConflict     Code = "guard_conflict"     // 500: another guard has claimed the same key for this request
	CodeNoRun             Code = "no_run"             // 500: the context that a handler has passed on belongs to no run, or to one of another store
)

// Refusal is an answer without a run and without a stored response. [Do] returns it as an error, and
// [Config.Refuse] makes an HTTP response of it. errors.Is finds it by its Code, and by another refusal
// with the same Code.
type Refusal struct {
	// Code is the stable reason.
	Code Code
	// Status is the HTTP status code.
	Status int
	// Detail is a sentence for people. It contains nothing of the request or the store.
	Detail string
	// RetryAfter is how long to wait before another try. Zero: another try makes no sense, or the
	// time is not known. On the wire it is rounded up to whole seconds.
	RetryAfter time.Duration
	// Request is the refused request, for [Config.Refuse] only; else it is nil. It has its Body
	// only if the engine had read it before.
	Request *Request
	// Stored is the response stored under the key, if Code is key_reused and the caller may see it
	// ([Policy].Authorize): a page can link to the receipt. It is for [Config.Refuse] only, and must
	// not be changed.
	Stored *Response

	cause error
}

// Error returns the code and the detail.
func (r *Refusal) Error() string {
	if r.cause != nil {
		return fmt.Sprintf("idem: %s: %s (%v)", r.Code, r.Detail, r.cause)
	}
	return fmt.Sprintf("idem: %s: %s", r.Code, r.Detail)
}

// Unwrap returns the error behind the refusal, such as the store's. It may be nil.
func (r *Refusal) Unwrap() error { return r.cause }

// Is reports whether target is the refusal's code, or a refusal with the same one.
func (r *Refusal) Is(target error) bool {
	if t, ok := target.(*Refusal); ok {
		return t.Code == r.Code
	}
	return target == r.Code
}

// Type returns the problem type URI (RFC 9457, section 3.1.1). It is stable, and is the address of a
// page that explains the code.
func (r *Refusal) Type() string { return problemTypes + string(r.Code) }

// Title returns the short description of the code (RFC 9457, section 3.1.3).
func (r *Refusal) Title() string { return particulars[r.Code].title }

const problemTypes = "https://github.com/idem-go/idem/blob/main/docs/problems.md#"

var particulars = map[Code]struct {
	status        int
	title, detail string
}{
	CodeInProgress:        {http.StatusConflict, "Operation in progress", "The same operation is being carried out. Try again later to get its result."},
	CodeDuplicate:         {http.StatusConflict, "Duplicate operation", "This operation has already been carried out."},
	CodeResultUnavailable: {http.StatusConflict, "Result unavailable", "This operation has already been run; its response was not stored."},
	CodeUncertain:         {http.StatusConflict, "Outcome uncertain", "An earlier attempt at this operation did not finish, and it is not known whether it took effect."},
	CodeKeyReused:         {http.StatusUnprocessableEntity, "Idempotency key reused", "This idempotency key was used with other parameters."},
	CodeKeyMissing:        {http.StatusBadRequest, "Idempotency key missing", "This operation needs an idempotency key."},
	CodeKeyInvalid:        {http.StatusBadRequest, "Idempotency key invalid", "The idempotency key must be sent once, as one string or token of 1 to 255 bytes."},
	CodeTokenMissing:      {http.StatusBadRequest, "Token missing", "This operation needs a one-shot token."},
	CodeTokenInvalid:      {http.StatusForbidden, "Token invalid", "The one-shot token was not issued for this caller and this operation."},
	CodeTokenExpired:      {http.StatusGone, "Token expired", "The one-shot token is too old to be used for the first time. Ask for a new one."},
	CodeUserMissing:       {http.StatusBadRequest, "User missing", "The request does not say who sends it."},
	CodeBodyUnreadable:    {http.StatusBadRequest, "Body unreadable", "The request body could not be read to its end."},
	CodeBodyTooLarge:      {http.StatusRequestEntityTooLarge, "Body too large", "The request body is over the limit."},
	CodeBodyConsumed:      {http.StatusInternalServerError, "Body consumed", "The service has read the request body before it was protected. Nothing was carried out."},
	CodeNotAuthorized:     {http.StatusForbidden, "Not authorized", "The stored result may not be shown to this caller."},
	CodeRateLimited:       {http.StatusTooManyRequests, "Rate limited", "This has been asked for too often. Try again later."},
	CodeStoreUnavailable:  {http.StatusServiceUnavailable, "Store unavailable", "The operation was not carried out, because it could not be protected against being repeated."},
	CodeShuttingDown:      {http.StatusServiceUnavailable, "Shutting down", "The service is shutting down. Try again: another instance will answer."},
	CodeUnfinished:        {http.StatusServiceUnavailable, "Operation unfinished", "The operation was begun, and given up before it had an answer. Try again."},
	CodeStoreNotShared:    {http.StatusInternalServerError, "Store not shared", "The service runs as several processes whose stores know nothing of each other. Nothing was carried out."},
	CodeGuardConflict:     {http.StatusInternalServerError, "Guards in conflict", "Two policies of the service claim the same operation. Nothing was carried out."},
	CodeNoRun:             {http.StatusInternalServerError, "No run", "The service could not tell to which operation its own call belongs. The call was not carried out."},
}

// refusal makes a refusal with the particulars of its code.
func refusal(c Code) *Refusal {
	p := particulars[c]
	r := &Refusal{Code: c, Status: p.status, Detail: p.detail}
	if p.status == http.StatusServiceUnavailable || c == CodeInProgress || c == CodeRateLimited {
		r.RetryAfter = time.Second
	}
	return r
}

// The refusals of guards. They are shared, and copied before they leave the package.
var (
	refusalBodyConsumed     = refusal(CodeBodyConsumed)
	refusalBodyTooLarge     = refusal(CodeBodyTooLarge)
	refusalBodyUnreadable   = refusal(CodeBodyUnreadable)
	refusalGuardConflict    = refusal(CodeGuardConflict)
	refusalInProgress       = refusal(CodeInProgress)
	refusalKeyInvalid       = refusal(CodeKeyInvalid)
	refusalKeyMissing       = refusal(CodeKeyMissing)
	refusalKeyReused        = refusal(CodeKeyReused)
	refusalNotAuthorized    = refusal(CodeNotAuthorized)
	refusalNotShared        = refusal(CodeStoreNotShared)
	refusalShuttingDown     = refusal(CodeShuttingDown)
	refusalStoreUnavailable = refusal(CodeStoreUnavailable)
	refusalTokenExpired     = refusal(CodeTokenExpired)
	refusalTokenInvalid     = refusal(CodeTokenInvalid)
	refusalTokenMissing     = refusal(CodeTokenMissing)
	refusalUnavailable      = refusal(CodeResultUnavailable)
	refusalUncertain        = refusal(CodeUncertain)
	refusalUnfinished       = refusal(CodeUnfinished)
	refusalUserMissing      = refusal(CodeUserMissing)
)

// NewRefusal returns a refusal with the status and texts of code. cause, which may be nil, is the error
// behind it. An unknown code has the status 500. It is for middleware that refuses as a guard does.
func NewRefusal(code Code, cause error) *Refusal {
	r := refusal(code)
	setDefault(&r.Status, http.StatusInternalServerError)
	r.cause = cause
	return r
}

// because returns a copy of r with cause behind it.
func (r *Refusal) because(cause error) *Refusal {
	own := *r
	own.cause = cause
	return &own
}

// problem is the body of a refusal (RFC 9457, section 3).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   Code   `json:"code"`
}

// RefusalResponse returns the response of a guard for err, if it is or wraps a [Refusal], such as the
// error of a [Do] within a handler; else nil. ctx is the handler's context: if it belongs to a run,
// [Config.Refuse] of the run's engine makes the response, and gets request. A nil request is a Request in
// which nothing is set.
//
// It is for handlers that can't return an error, see httpidem.Refuse. Where they can (Echo, Fiber, and
// c.AbortWithError of Gin), the guard itself answers with the refusal, unless a middleware has rendered the
// error. Either way the run has failed, and its response is not kept.
func RefusalResponse(ctx context.Context, err error, request *Request) *Response {
	r := reported(err)
	if r == nil {
		return nil
	}
	if run := RunFrom(ctx); run != nil {
		run.answered.Store(r)
		if request == nil {
			request = &Request{Headers: noHeaders{}}
		}
		return run.guard.response(ctx, r, request)
	}
	return r.response(ctx, nil, nil)
}

// response makes the response that r is on the wire.
func (g *Guard) response(ctx context.Context, r *Refusal, request *Request) *Response {
	return r.response(ctx, g.engine.refuse, request)
}

func (r *Refusal) response(ctx context.Context, hook func(context.Context, *Refusal) *Response, request *Request) *Response {
	var resp *Response
	if hook != nil {
		own := *r
		own.Request = request
		if made := hook(ctx, &own); made != nil {
			c := *made
			resp = &c
			resp.Header = canonical(made.Header)
			setDefault(&resp.Status, r.Status)
		}
	}
	if resp == nil {
		resp = &Response{Status: r.Status, Header: []Field{{"Content-Type", "application/problem+json"}}}
		resp.Body, _ = json.Marshal(problem{r.Type(), r.Title(), r.Status, r.Detail, r.Code}) // strings and an int: cannot fail
	}
	if resp.Get("Cache-Control") != historyOnly {
		resp.set("Cache-Control", "no-store")
	}
	resp.set(RefusedHeader, string(r.Code))
	if r.RetryAfter > 0 && resp.Get("Retry-After") == "" {
		seconds := 1 + int64((r.RetryAfter-1)/time.Second)
		resp.set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	return resp
}

// historyOnly keeps an answer out of all caches but the history of a browser: with no-store the browser's
// Back asks whether the form is to be sent again.
const historyOnly = "private, no-cache"

// canonical returns a copy of fields that a user has written, with canonical names: net/http does not
// find "content-type", and would add a Content-Type of its own.
func canonical(fields []Field) []Field {
	own := slices.Clone(fields)
	for i := range own {
		own[i].Name = http.CanonicalHeaderKey(own[i].Name)
	}
	return own
}

// set replaces the fields called name by one.
func (r *Response) set(name, value string) {
	r.Header = slices.DeleteFunc(r.Header, func(f Field) bool { return equalFold(f.Name, name) })
	r.Header = append(r.Header, Field{name, value})
}
