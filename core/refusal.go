package core

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idem/core/codes"
)

// RefusedHeader is a header field of every refusal; its value is the [codes.Code]. A cache or gateway must not keep a response that
// has it.
const RefusedHeader = "Idempotency-Refused"

// Refusal is an answer without a run and without a stored response. [Do] returns it as an error, and [Config.Refuse] turns it into
// an HTTP response. errors.Is finds it by its Code.
type Refusal struct {
	// Code is the stable reason.
	Code codes.Code
	// Status is the HTTP status code.
	Status int
	// Detail is a sentence for people. It contains nothing of the request or the store.
	Detail string
	// RetryAfter is how long to wait before another try. Zero: another try makes no sense, or the time is not known. On the wire it
	// is rounded up to whole seconds.
	RetryAfter time.Duration
	// Request is the refused request, for [Config.Refuse] and [Policy].Refuse only; otherwise it is nil. It has its Body only if
	// the engine had already read it.
	Request *Request
	// Stored is the response stored under the key, if Code is key_reused and the caller may see it ([Policy].Authorize): a page can
	// link to the receipt. It is set for the same two hooks only, and must not be changed.
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

// Unwrap returns the code, and the error behind the refusal, such as the store's, if there is one.
func (r *Refusal) Unwrap() []error {
	if r.cause == nil {
		return []error{r.Code}
	}
	return []error{r.Code, r.cause}
}

// refusal makes a refusal with the particulars of its code.
func refusal(c codes.Code) *Refusal {
	r := &Refusal{Code: c, Status: c.Status(), Detail: c.Detail()}
	if r.Status == http.StatusServiceUnavailable || c == codes.InProgress || c == codes.RateLimited {
		r.RetryAfter = time.Second
	}
	return r
}

// The refusals of guards. They are shared, and copied before they leave the package.
var (
	refusalBodyConsumed     = refusal(codes.BodyConsumed)
	refusalBodyTooLarge     = refusal(codes.BodyTooLarge)
	refusalBodyUnreadable   = refusal(codes.BodyUnreadable)
	refusalGuardConflict    = refusal(codes.GuardConflict)
	refusalInProgress       = refusal(codes.InProgress)
	refusalKeyExpired       = refusal(codes.KeyExpired)
	refusalKeyInvalid       = refusal(codes.KeyInvalid)
	refusalKeyMissing       = refusal(codes.KeyMissing)
	refusalKeyReused        = refusal(codes.KeyReused)
	refusalNotAuthorized    = refusal(codes.NotAuthorized)
	refusalNotShared        = refusal(codes.StoreNotShared)
	refusalShuttingDown     = refusal(codes.ShuttingDown)
	refusalStoreUnavailable = refusal(codes.StoreUnavailable)
	refusalTokenExpired     = refusal(codes.TokenExpired)
	refusalTokenInvalid     = refusal(codes.TokenInvalid)
	refusalTokenMissing     = refusal(codes.TokenMissing)
	refusalUnavailable      = refusal(codes.ResultUnavailable)
	refusalUncertain        = refusal(codes.Uncertain)
	refusalUnfinished       = refusal(codes.Unfinished)
	refusalUserMissing      = refusal(codes.UserMissing)
)

// NewRefusal returns a refusal with the status and texts of code. cause, which may be nil, is the error behind it. An unknown code
// has the status 500. It is for middleware that refuses as a guard does.
func NewRefusal(code codes.Code, cause error) *Refusal {
	r := refusal(code)
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
	Type   string     `json:"type"`
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail"`
	Code   codes.Code `json:"code"`
}

// RefusalResponse returns the response of a guard for err, if err is or wraps a [Refusal], such as the error of a [Do] within a
// handler; otherwise nil. ctx is the handler's context. If it belongs to a run, the run's [Policy].Refuse or [Config.Refuse] makes
// the response, and gets request. A nil request is replaced by an empty Request.
//
// It is for handlers that can't return an error, see httpidem.Refuse. Where they can (Echo, Fiber, and c.AbortWithError of Gin),
// the guard itself answers with the refusal, unless a middleware has rendered the error. Either way the run has failed, and its
// response is not kept.
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
	return g.told(r).response(ctx, g.refuses, request)
}

// told returns r as the guard's clients are told of it. To a sender of events a 409 means nothing, and after a 410 it sends no
// event any more: it is to come again.
func (g *Guard) told(r *Refusal) *Refusal {
	if !g.ofEvents() || r.Status != http.StatusConflict && r.Status != http.StatusGone {
		return r
	}
	own := *r
	own.Status = http.StatusServiceUnavailable
	if r.Code == codes.Uncertain { // until somebody has found out
		own.RetryAfter = time.Minute
	}
	setDefault(&own.RetryAfter, time.Second)
	return &own
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
		resp = &Response{Status: r.Status, Header: []Field{{Name: "Content-Type", Value: "application/problem+json"}}}
		resp.Body, _ = json.Marshal(problem{r.Code.Type(), r.Code.Title(), r.Status, r.Detail, r.Code}) // strings and an int: cannot fail
	}
	if resp.Get("Cache-Control") != historyOnly {
		setField(resp, "Cache-Control", "no-store")
	}
	setField(resp, RefusedHeader, string(r.Code))
	if r.RetryAfter > 0 && resp.Get("Retry-After") == "" {
		seconds := 1 + int64((r.RetryAfter-1)/time.Second)
		setField(resp, "Retry-After", strconv.FormatInt(seconds, 10))
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
