package httpidem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/httpidem"
)

// Config.Refuse makes the answers of handlers' refusals, too, and always has the request to look at.
func TestRefuse(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers(),
		Refuse: func(_ context.Context, r *core.Refusal) *adapter.Response {
			accept, _ := r.Request.Headers.Header("Accept", 0)
			return &adapter.Response{Status: http.StatusOK, Body: []byte(
				fmt.Sprint(r.Request.Method, " ", r.Request.Route, " ", r.Request.PathParams, " ", accept))}
		}})
	var err error
	refused := false
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httpidem.New(engine.MustGuard(core.Policy{}))(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if refused = httpidem.Refuse(w, r, err); !refused {
				w.WriteHeader(http.StatusCreated)
			}
		})))
	ask := func(with error) *httptest.ResponseRecorder {
		err = with
		r := httptest.NewRequest("POST", "/orders/7", nil)
		r.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	w := ask(fmt.Errorf("order: %w", core.NewRefusal(codes.Uncertain, nil)))
	require.True(t, refused)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "uncertain", w.Header().Get(core.RefusedHeader))
	assert.Equal(t, "POST /orders/:id [{id 7}] text/html", w.Body.String())

	assert.Equal(t, http.StatusCreated, ask(errors.New("no refusal")).Code, "the refusal was not kept")
	assert.False(t, refused)
}

// Fields that a service has written by hand are those that net/http knows, in whatever case: it would
// add a second Content-Type to "content-type".
func TestFieldsInLowerCase(t *testing.T) {
	byHand := &adapter.Response{Status: http.StatusOK,
		Header: []adapter.Field{{Name: "content-type", Value: "application/json"}}, Body: []byte("{}")}
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers(),
		Refuse: func(context.Context, *core.Refusal) *adapter.Response { return byHand }})
	uncertain := engine.MustGuard(core.Policy{Record: core.Record{
		OnFailure: core.Abandon,
		Abandoned: core.Uncertain(func(context.Context, core.Uncertainty) (core.Verdict, error) { return core.Finished(byHand), nil }),
	}})
	mux := http.NewServeMux()
	mux.Handle("POST /refused", httpidem.New(engine.MustGuard(core.ClientKey()))(http.NotFoundHandler()))
	mux.Handle("POST /finished", httpidem.New(uncertain)(http.NotFoundHandler()))
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, path := range []string{"/refused", "/finished"} {
		var resp *http.Response
		for range 2 { // the first one to /finished is abandoned
			var err error
			resp, err = http.Post(server.URL+path, "", nil)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, []string{"application/json"}, resp.Header.Values("Content-Type"), path)
	}
	assert.Equal(t, "content-type", byHand.Header[0].Name, "it is the service's own")
}
