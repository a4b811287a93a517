package sign

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Refusal is the answer to a message that was refused, for an adapter to write.
type Refusal struct {
	// Status is the HTTP status code.
	Status int
	// Header are the fields to be set, in place of those of the same name. Content-Length is the
	// adapter's to set.
	Header []Field
	// Body is the whole body.
	Body []byte
}

const problemTypes = "https://github.com/idem-go/idem/blob/main/README.md#"

// particulars is the one place that says what goes out for a code.
var particulars = map[Code]struct {
	status        int
	title, detail string
}{
	CodeMissing:          {http.StatusUnauthorized, "Signature missing", "The request must be signed; the signature, or a part of it, is not there."},
	CodeInvalid:          {http.StatusUnauthorized, "Signature invalid", "The signature is not a known key's signature of this request."},
	CodeExpired:          {http.StatusUnauthorized, "Signature expired", "The request was signed too long ago. Compare your clock with the Date of this response, and sign anew."},
	CodeNotYetValid:      {http.StatusUnauthorized, "Signature not yet valid", "The request was signed in the future. Compare your clock with the Date of this response, and sign anew."},
	CodeReplayed:         {http.StatusUnauthorized, "Request replayed", "The nonce has been used. Sign each request anew, also when the same operation is tried again."},
	CodeMalformed:        {http.StatusBadRequest, "Signature malformed", "A part of the signature has not the form that it must have."},
	CodeDuplicateHeader:  {http.StatusBadRequest, "Header field duplicated", "A header field that counts for the signature was sent more than once."},
	CodeBodyTooLarge:     {http.StatusRequestEntityTooLarge, "Body too large", "The request body is over the limit."},
	CodeStoreUnavailable: {http.StatusServiceUnavailable, "Store unavailable", "The signature could not be checked now. Sign the request anew and try again."},
}

// Status returns the HTTP status code that goes with the error's code.
func (e *Error) Status() int { return particulars[e.known()].status }

// Type returns the problem type URI (RFC 9457, section 3.1.1). It is stable, and leads to
// the code's explanation.
func (e *Error) Type() string { return problemTypes + string(e.known()) }

// Title returns the short text that goes with the code (RFC 9457, section 3.1.3).
func (e *Error) Title() string { return particulars[e.known()].title }

// known is the code; an error that somebody has made up is CodeInvalid outside.
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

// Refusal makes the answer of an error that [Verifier.Verify] has returned. Reason and Detail
// are not in it. For expired and not_yet_valid it has a Date, by the clock with which the
// timestamp was compared.
func (v *Verifier) Refusal(err error) *Refusal {
	e := asError(err)
	code := e.known()
	p := particulars[code]
	r := &Refusal{Status: p.status}
	contentType := "application/problem+json"
	if v.c.RefusalBody != nil {
		own := *e // not the package's: the function may change it
		contentType, r.Body = v.c.RefusalBody(&own)
	} else {
		r.Body, _ = json.Marshal(problem{e.Type(), p.title, p.status, p.detail, code}) // strings and an int: cannot fail
	}
	r.Header = append(r.Header, Field{"Cache-Control", "no-store"}, Field{"Content-Type", contentType})
	switch {
	case code == CodeExpired || code == CodeNotYetValid:
		r.Header = append(r.Header, Field{"Date", v.c.Clock().UTC().Format(http.TimeFormat)})
	case code == CodeStoreUnavailable:
		r.Header = append(r.Header, Field{"Retry-After", strconv.Itoa(int(retryAfter / time.Second))})
	}
	if p.status == http.StatusUnauthorized { // which needs a challenge (RFC 9110, section 15.5.2)
		r.Header = append(r.Header, Field{"WWW-Authenticate", `Signature scheme="` + v.c.Scheme.Name() + `"`})
	}
	return r
}

// retryAfter is when another try makes sense while a store is not there.
const retryAfter = time.Second
