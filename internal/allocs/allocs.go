// Package allocs counts the allocations of HTTP handlers, for tests.
package allocs

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Writer is an http.ResponseWriter that keeps nothing but the header.
type Writer http.Header

// Header implements [http.ResponseWriter].
func (w Writer) Header() http.Header { return http.Header(w) }

// WriteHeader implements [http.ResponseWriter].
func (w Writer) WriteHeader(int) {}

// Write implements [http.ResponseWriter].
func (w Writer) Write(b []byte) (int, error) { return len(b), nil }

// PerRequest returns how often h allocates for a request with a body of 200 bytes. The bodies are all different, or all the same.
// w has the header of the last answer.
func PerRequest(w Writer, h http.Handler, different bool) float64 {
	body := bytes.Repeat([]byte("x"), 200)
	reader := bytes.NewReader(nil)
	closer := io.NopCloser(reader)
	r := httptest.NewRequest("POST", "/orders", nil)
	r.Header.Set("X-User", "alice")
	n := 0
	return testing.AllocsPerRun(5000, func() {
		if different {
			body[n%100]++
			n++
		}
		reader.Reset(body)
		r.Body, r.ContentLength = closer, int64(len(body))
		clear(w)
		h.ServeHTTP(w, r)
	})
}
