package ginidem_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/internal/leakcheck"
)

// TestNothingLeaks: thousands of requests at once, in memory that is used again, and nobody
// gets or leaves anything of another. What package httpidem pools for this one is poisoned
// in its own test.
func TestNothingLeaks(t *testing.T) {
	gin.SetMode(gin.TestMode)
	engine, store := leakcheck.Engine(t)
	parameters, key := leakcheck.Guards(engine)
	var bodies leakcheck.Bodies
	handler := func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			_ = c.AbortWithError(http.StatusBadRequest, err)
			return
		}
		bodies.Keep(c.Param("id"), c.Request.GetBody)
		a := leakcheck.Of(leakcheck.Seen{ID: c.Param("id"), Query: c.Request.URL.RawQuery,
			User: c.GetHeader("X-User"), Key: c.GetHeader("Idempotency-Key"), Body: body})
		c.Header("Location", a.Location)
		c.Header("X-Echo", a.Echo)
		c.Data(http.StatusCreated, a.ContentType, a.Body)
		clear(a.Body) // it must have been copied
		clear(body)   // and this is the handler's own
	}
	router := gin.New()
	router.POST(leakcheck.Route, ginidem.New(parameters), handler)
	router.POST(leakcheck.KeyRoute, ginidem.New(key), handler)
	send := func(r *http.Request) (*leakcheck.Response, error) {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return &leakcheck.Response{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}, nil
	}
	const requests = 3000
	leakcheck.Run{Requests: requests, Send: send}.Test(t, store)
	bodies.Check(t, requests)
}
