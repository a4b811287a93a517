package echotest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/idem-go/idem/internal/leakcheck"
)

// TestNothingLeaks: thousands of requests at once, in memory that is used again, and nobody
// gets or leaves anything of another. What package httpidem pools for this one is poisoned
// in its own test.
func (s suite[C]) testNothingLeaks(t *testing.T) {
	engine, store := leakcheck.Engine(t)
	parameters, key := leakcheck.Guards(engine)
	var bodies leakcheck.Bodies
	handler := func(c C) error {
		r := c.Request()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		bodies.Keep(c.Param("id"), r.GetBody)
		a := leakcheck.Of(leakcheck.Seen{ID: c.Param("id"), Query: r.URL.RawQuery,
			User: r.Header.Get("X-User"), Key: r.Header.Get("Idempotency-Key"), Body: body})
		s.response(c).Header().Set("Location", a.Location)
		s.response(c).Header().Set("X-Echo", a.Echo)
		err = c.Blob(http.StatusCreated, a.ContentType, a.Body)
		clear(a.Body) // it must have been copied
		clear(body)   // and this is the handler's own
		return err
	}
	e := s.NewApp()
	e.Add("POST", leakcheck.Route, handler, s.New(parameters))
	e.Add("POST", leakcheck.KeyRoute, handler, s.New(key))
	send := func(r *http.Request) (*leakcheck.Response, error) {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return &leakcheck.Response{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}, nil
	}
	const requests = 3000
	leakcheck.Run{Requests: requests, Send: send}.Test(t, store)
	bodies.Check(t, requests)
}
