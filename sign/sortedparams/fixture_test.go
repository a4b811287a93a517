package sortedparams

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// designSecret is the secret of the documented examples.
const designSecret = "0123456789abcdef0123456789abcdef"

// now is the time of the tests' verifiers.
var now = time.Unix(1700000000, 0)

func fixedClock() time.Time { return now }

func replaceBody(body string) func(*http.Request) {
	return func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(body)) }
}

func setHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func addHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}
