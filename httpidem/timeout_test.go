package httpidem_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/httpidem"
)

func TestATimeoutHandlerIsRefusedAtMounting(t *testing.T) {
	next := http.TimeoutHandler(http.NotFoundHandler(), time.Second, "")
	require.PanicsWithValue(t, "httpidem: a guard is mounted around an http.TimeoutHandler, which lets its handler run on; "+
		"use http.TimeoutHandler(httpidem.New(guard)(handler), …)", func() { httpidem.New(guard(core.Policy{}))(next) })
	require.NotPanics(t, func() {
		http.TimeoutHandler(httpidem.New(guard(core.Policy{}))(http.NotFoundHandler()), time.Second, "")
	})
}

// Behind another middleware a timeout cannot be seen at mounting. When it has answered, the claim
// stands: the handler runs on.
func TestNothingRunsBesideAHandlerThatRunsOn(t *testing.T) {
	var mu sync.Mutex
	var events []core.Event
	now := time.Now()
	store, err := memstore.New(memstore.Config{Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	require.NoError(t, err)
	engine := core.MustNew(core.Config{Store: store, User: core.SharedByAllCallers(), Observe: func(_ context.Context, e core.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}})
	entered, leave := make(chan uint64, 9), make(chan struct{})
	var running sync.WaitGroup
	limited := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Done()
		entered <- httpidem.Run(r).Attempt()
		<-leave
		w.WriteHeader(http.StatusCreated)
	}), time.Millisecond, "too late")
	between := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limited.ServeHTTP(w, r) })
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpidem.New(engine.MustGuard(core.Policy{}))(between))
	s := server(t, mux)
	defer running.Wait()
	defer close(leave)

	require.Equal(t, "too late", post(t, s, "/orders", "{}").body)
	require.EqualValues(t, 1, <-entered)
	for range 2 {
		require.Equal(t, "in_progress", post(t, s, "/orders", "{}").code())
	}
	mu.Lock()
	ended := events[2] // the store is local, the run has started
	require.Equal(t, core.RunUnfinished, ended.Kind)
	require.ErrorContains(t, ended.Err, "mount the guard inside the timeout")
	now = now.Add(30*time.Second + time.Second)
	mu.Unlock()
	require.Equal(t, "too late", post(t, s, "/orders", "{}").body)
	require.EqualValues(t, 2, <-entered, "a takeover")
}
