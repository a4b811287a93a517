package sign

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
)

// refusedHeader is the name of a header field of every refusal. Its value is the [Code]. A cache or a guard further out must
// not store a response with this field. Package core has the same name.
const refusedHeader = "Idempotency-Refused"

// Answer is what the client of a refused message gets. An adapter writes it.
type Answer struct {
	// Status is the HTTP status code.
	Status int
	// Header are the fields to set. Each replaces all fields of its name. The adapter sets Content-Length.
	Header http.Header
	// Body is the whole body.
	Body []byte
}

const problemTypes = "https://github.com/idem-go/idem/blob/main/docs/problems.md#"

// particulars are the public texts and the status of each code.
var particulars = map[Code]struct {
	status        int
	title, detail string
}{
	CodeMissing: {http.StatusUnauthorized, "Signature missing",
		"The request must be signed. Its signature, or a part of it, is missing."},
	CodeInvalid: {http.StatusUnauthorized, "Signature invalid", "The signature was not made for this request by a known key."},
	CodeExpired: {http.StatusUnauthorized, "Signature expired",
		"The request was signed too long ago. Compare your clock with the Date of this response, and sign the request again."},
	CodeNotYetValid: {http.StatusUnauthorized, "Signature not yet valid",
		"The request is dated in the future. Compare your clock with the Date of this response, and sign the request again."},
	CodeReplayed: {http.StatusUnauthorized, "Request replayed",
		"The nonce has already been used. Sign every request again, retries included."},
	CodeMalformed: {http.StatusBadRequest, "Signature malformed", "A part of the signature is malformed."},
	CodeDuplicateHeader: {http.StatusBadRequest, "Header field duplicated",
		"A header field that belongs to the signature was sent more than once."},
	CodeBodyTooLarge: {http.StatusRequestEntityTooLarge, "Body too large", "The request body is over the limit."},
	CodeRateLimited: {http.StatusTooManyRequests, "Rate limited",
		"Too many requests were signed with the keys of one owner. Sign the request again, and try again later."},
	CodeStoreUnavailable: {http.StatusServiceUnavailable, "Store unavailable",
		"The signature cannot be checked at the moment. Sign the request again, and try again later."},
}

// Status returns the HTTP status of the error's code.
func (e *Error) Status() int { return particulars[e.known()].status }

// Type returns the problem type URI (RFC 9457, section 3.1.1). It is stable, and its page explains the code.
func (e *Error) Type() string { return problemTypes + string(e.known()) }

// Title returns a short summary of the code for people (RFC 9457, section 3.1.3).
func (e *Error) Title() string { return particulars[e.known()].title }

// known returns the code, or CodeInvalid for one that is not of this package.
func (e *Error) known() Code {
	if _, ok := particulars[e.Code]; ok {
		return e.Code
	}
	return CodeInvalid
}

// problem is the body of a refusal (RFC 9457, section 3).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   Code   `json:"code"`
}

// Answer returns the answer for an error of [Verifier.Verify]. ctx is the request's. The answer contains neither Reason nor
// Detail. For [CodeExpired] and [CodeNotYetValid] it has a Date from the clock that the timestamp was compared with.
func (v *Verifier) Answer(ctx context.Context, err error) *Answer {
	e := asError(err)
	code := e.known()
	p := particulars[code]
	challenge := ""
	if v.demands.Challenge != nil {
		challenge = v.demands.Challenge(asError(e))
	}
	if challenge != "" && p.status < http.StatusInternalServerError {
		p.status = http.StatusUnauthorized
	}
	a := &Answer{Header: make(http.Header)}
	if v.c.Refuse != nil {
		if made := v.c.Refuse(ctx, asError(e)); made != nil {
			a.Status, a.Body = cmp.Or(made.Status, p.status), made.Body
			for name, values := range made.Header { // net/http does not find "content-type", and adds a Content-Type of its own
				for _, value := range values {
					a.Header.Add(name, value)
				}
			}
		}
	}
	if a.Status == 0 {
		a.Status = p.status
		a.Header.Set("Content-Type", "application/problem+json")
		a.Body, _ = json.Marshal(problem{e.Type(), p.title, p.status, p.detail, code}) // strings and an int: cannot fail
	}
	a.Header.Set("Cache-Control", "no-store")
	a.Header.Set(refusedHeader, string(code))
	switch {
	case code == CodeExpired || code == CodeNotYetValid:
		a.setDefault("Date", v.c.Clock().UTC().Format(http.TimeFormat))
	case code == CodeStoreUnavailable || code == CodeRateLimited:
		a.setDefault("Retry-After", strconv.FormatInt(max(e.retryAfter, 1), 10))
	}
	// A 401 needs a challenge (RFC 9110, section 15.5.2).
	if challenge != "" || p.status == http.StatusUnauthorized || a.Status == http.StatusUnauthorized {
		a.setDefault("Www-Authenticate", cmp.Or(challenge, `Signature scheme="`+v.c.Scheme.Name()+`"`))
	}
	return a
}

// setDefault adds a field unless there is one of that name, which is in canonical form.
func (a *Answer) setDefault(name, value string) {
	if a.Header[name] == nil {
		a.Header.Set(name, value)
	}
}
