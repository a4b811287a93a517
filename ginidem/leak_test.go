package ginidem_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/internal/marked"
)

// TestNothingLeaks: thousands of requests at once, in memory that is used again, and nobody
// gets or leaves anything of another. What package httpidem pools for this one is poisoned
// in its own test.
func TestNothingLeaks(t *testing.T) {
	gin.SetMode(gin.TestMode)
	engine, store := marked.Engine(t)
	parameters, key := marked.Guards(engine)
	var bodies marked.Bodies
	handler := func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			_ = c.AbortWithError(http.StatusBadRequest, err)
			return
		}
		bodies.Keep(c.Param("id"), c.Request.GetBody)
		a := marked.Of(marked.Seen{ID: c.Param("id"), Query: c.Request.URL.RawQuery,
			User: c.GetHeader("X-User"), Key: c.GetHeader("Idempotency-Key"), Body: body})
		c.Header("Location", a.Location)
		c.Header("X-Echo", a.Echo)
		c.Data(http.StatusCreated, a.ContentType, a.Body)
		clear(a.Body) // it must have been copied
		clear(body)   // and this is the handler's own
	}
	router := gin.New()
	router.POST(marked.Route, ginidem.New(parameters), handler)
	router.POST(marked.KeyRoute, ginidem.New(key), handler)
	send := func(r *http.Request) (*marked.Response, error) {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return &marked.Response{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}, nil
	}
	const requests = 3000
	marked.Run{Requests: requests, Send: send}.Test(t, store)
	bodies.Check(t, requests)
}
