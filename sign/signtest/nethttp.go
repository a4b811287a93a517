package signtest

import (
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/sign"
)

// NetHTTP returns a harness for an adapter that makes net/http middleware of a verifier.
func NetHTTP(name string, verify func(*sign.Verifier) func(http.Handler) http.Handler) Harness {
	return Harness{Name: name, HTTP2: true, Start: func(tb testing.TB, app App) string {
		tb.Helper()
		return startNetHTTP(tb, app, verify(app.Verifier))
	}}
}

func startNetHTTP(tb testing.TB, app App, verify func(http.Handler) http.Handler) string {
	tb.Helper()
	return Listen(tb, Handler(app, verify))
}

// Handler returns app's handler for net/http, and for its one route, if it has one, the mux around it. mount is
// what puts middleware in front of the handler.
func Handler(app App, mount func(http.Handler) http.Handler) http.Handler {
	h := mount(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(app.Handle(Seen{Context: r.Context(), Method: r.Method, Header: r.Header.Get, Body: body, Err: err}))
	}))
	if app.Pattern == "" {
		// Not on a mux, which would clean paths before anything else sees them.
		return h
	}
	segments := strings.Split(app.Pattern, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, ":") {
			segments[i] = "{" + s[1:] + "}"
		}
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+strings.Join(segments, "/"), h)
	return mux
}

// Listen serves h, by HTTP/1.1 and HTTP/2, on a free port of 127.0.0.1 and returns the address. When the test ends it closes
// the server and waits until nothing runs for any of its connections. It is for the harnesses of
// frameworks that rest on net/http.
func Listen(tb testing.TB, h http.Handler) (addr string) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var open sync.WaitGroup
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Protocols: &protocols,
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler:   h,
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed, http.StateHijacked:
				open.Done()
			}
		},
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // always an error: that of Close
	}()
	tb.Cleanup(func() {
		_ = server.Close()
		<-served
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			open.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(patience):
			tb.Error("the server is closed, and a handler still runs")
		}
	})
	return listener.Addr().String()
}
