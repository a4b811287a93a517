package guarded

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// NetHTTP returns a harness for an adapter that makes net/http middleware of a verifier and of a guard.
func NetHTTP(name string, verify func(*sign.Verifier) func(http.Handler) http.Handler, guard func(*core.Guard) func(http.Handler) http.Handler) Harness {
	return OnNetHTTP(name, func(app App) http.Handler {
		return signtest.Handler(app.App, func(h http.Handler) http.Handler {
			for _, middleware := range slices.Backward(Stack(app, verify, guard)) {
				h = middleware(h)
			}
			return h
		})
	})
}

// OnNetHTTP returns a harness for a framework that rests on net/http. build makes what its server serves; it need
// not look at App.Fields and App.BodyLimit.
func OnNetHTTP(name string, build func(app App) http.Handler) Harness {
	return Harness{
		Name:       name,
		OuterLimit: true,
		HTTP2:      true,
		Start: func(tb testing.TB, app App) string {
			tb.Helper()
			return signtest.Listen(tb, app.inFront(build(app)))
		},
		Direct: func(tb testing.TB, app App, message []byte) func() {
			tb.Helper()
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(message)))
			if err != nil {
				tb.Fatal(err)
			}
			sent, err := io.ReadAll(r.Body)
			if err != nil {
				tb.Fatal(err)
			}
			body := bytes.NewReader(sent)
			r.Body = io.NopCloser(body)
			h, w := build(app), discard{make(http.Header)}
			return func() {
				body.Reset(sent)
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		},
	}
}

// inFront puts what obeys Fields and BodyLimit in front of h.
func (app App) inFront(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, f := range app.Fields {
			w.Header().Set(f.Name, f.Value)
		}
		if app.BodyLimit > 0 {
			r.Body = http.MaxBytesReader(w, r.Body, app.BodyLimit)
		}
		h.ServeHTTP(w, r)
	})
}

// discard is a response that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
