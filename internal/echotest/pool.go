package echotest

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/allocs"
	"github.com/idem-go/idem/internal/race"
)

func (s suite[C]) testAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("sync.Pool drops what it is given at random under the race detector")
	}
	jsonType, jsonBody := []string{"application/json"}, []byte(`{"order_id":"ord-0001"}`)
	serve := func(mw ...Middleware[C]) App[C] {
		e := s.NewApp()
		e.Add("POST", "/orders", func(c C) error {
			w := s.Response(c)
			w.Header()["Content-Type"] = jsonType
			w.WriteHeader(201)
			_, err := w.Write(jsonBody)
			return err
		}, mw...)
		return e
	}
	mw := s.New(core.MustNew(core.Config{User: core.UserFromHeader("X-User")}).MustGuard(core.Policy{}))
	w := allocs.Writer{}
	bare := allocs.PerRequest(w, serve(), true)
	require.LessOrEqual(t, allocs.PerRequest(w, serve(mw), true)-bare, 9.0, "first")
	require.LessOrEqual(t, allocs.PerRequest(w, serve(mw), false)-bare, s.Replay, "replay")
	require.Equal(t, []string{"true"}, w.Header()[core.ReplayedHeader])
}

// What goes back into the pool holds nothing.
func (s suite[C]) testThePoolHoldsNothing(t *testing.T) {
	e := s.NewApp()
	e.Add("POST", "/", func(c C) error { return c.NoContent(201) }, s.New(guard(core.Policy{}).Guard))
	post(e, "/", "body")
	if x := s.Pooled(); !reflect.ValueOf(x).IsZero() {
		t.Errorf("an exchange in the pool has %+v", x)
	}
}

// Who has no tokens to issue learns it when the routes are made, and not by the first request.
func (s suite[C]) testIssueTokenWithoutTokens(t *testing.T) {
	require.PanicsWithValue(t, `idem: the key of the policy "orders" is no Token: there is nothing to issue`, func() {
		s.IssueToken(guard(core.Policy{Name: "orders"}).Guard)
	})
}
