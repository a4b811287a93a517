package faults_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/internal/backend"
)

// brokenLink breaks the connection between a service and its store. fresh returns an empty
// store behind a link.
func brokenLink(t *testing.T, section, name string, fresh func(t *testing.T) (*backend.Proxy, store.Store)) {
	try := trier(t, section, name, fresh)
	uncertain := core.Record{Abandoned: core.Uncertain(nil)}
	try("link cut as the claim is sent", newShop, core.Record{}, once, func(proxy *backend.Proxy, s *shop) {
		s.refuses(func(op string) { proxy.CutBefore([]byte(op)) }, nothing, s.until)
	})
	try("link cut after the claim was made, its answer lost", newShop, core.Record{Lease: lease}, once,
		func(proxy *backend.Proxy, s *shop) {
			// The claim that nobody holds is released.
			s.refuses(func(op string) { proxy.CutAfter([]byte(op)) }, nothing, s.until)
		})
	try("link cut as the result is sent", newShop, uncertain, once, func(proxy *backend.Proxy, s *shop) {
		s.while(func(op string, _ uint64) { proxy.CutBefore([]byte(op)) })
		s.answers(nothing, s.gets, "201 replayed") // the second try has brought it there
	})
	try("link cut after the result was stored, its answer lost", newShop, uncertain, once, func(proxy *backend.Proxy, s *shop) {
		s.while(func(op string, _ uint64) { proxy.CutAfter([]byte(op)) })
		s.answers(nothing, s.gets, "201 replayed")
	})
	try("link down before the claim, up later", newShop, core.Record{}, once, func(proxy *backend.Proxy, s *shop) {
		s.refuses(func(string) { proxy.Cut() }, proxy.Restore, s.until)
	})
	try("link down before the result, up later", newHastyShop, core.Record{}, once, func(proxy *backend.Proxy, s *shop) {
		s.while(first(proxy.Cut))
		s.answers(proxy.Restore, s.until, "201 replayed")
	})
	try("link slower than the deadline before the claim", newHastyShop, core.Record{}, once, func(proxy *backend.Proxy, s *shop) {
		s.refuses(func(string) { proxy.Delay(2 * storeTimeout) }, func() { proxy.Delay(0) }, s.until)
	})
	try("link stalled beyond the deadline from the handler on, then going on", newHastyShop, uncertain, once,
		func(proxy *backend.Proxy, s *shop) {
			s.while(func(string, uint64) { proxy.Stall() })
			s.answers(proxy.Resume, s.until, "201 replayed")
		})
	t.Run("many results stored whose answers are lost", func(t *testing.T) {
		proxy, records := fresh(t)
		lostAnswers(t, proxy, records)
	})
}

// lostAnswers loses the answers to the results of runs, at times until their clients have theirs: a record that a lost try has completed is
// not taken for a claim that is lost.
func lostAnswers(t *testing.T, proxy *backend.Proxy, records store.Store) {
	runs := 12
	if os.Getenv("IDEM_LONG") != "" {
		runs = 200
	}
	s := openShop(t, records, core.Policy{Record: core.Record{Lease: longLease}}, time.Second) // a connection may take 300 ms
	late := 0
	for i := range runs {
		op := fmt.Sprint("lost-", i, ".")
		down := i%4 == 3
		cut := make(chan struct{}, 1)
		s.while(func(op string, _ uint64) {
			lost := proxy.CutAfter([]byte(op))
			go func() {
				if <-lost; down {
					proxy.Cut()
				}
				cut <- struct{}{}
			}()
		})
		s.until("201", op)
		<-cut // the first try may have ended before it was sent
		if s.while(nil); down {
			proxy.Restore()
		}
		s.until("201 replayed", op)
		require.Equal(t, 1, s.ledger.of(op))
	}
	for _, r := range s.ended(runs) {
		require.Equal(t, core.Completed, r.Kind, r.Err)
		if r.Late {
			late++
		}
	}
	require.False(t, s.saw(core.LeaseLost))
	t.Logf("%d answers lost, %d of the runs settled late", runs, late)
}

// durableServer breaks a server that keeps what it has acknowledged. fresh returns one with
// an empty store.
func durableServer(t *testing.T, section, name string, fresh func(t *testing.T) (*backend.Server, store.Store)) {
	try := trier(t, section, name, fresh)
	try("server killed before the claim, restarted", newShop, core.Record{}, once, func(server *backend.Server, s *shop) {
		s.refuses(func(string) { server.Kill() }, server.Start, s.until)
	})
	try("server killed and restarted while the handler runs", newShop, core.Record{}, once, func(server *backend.Server, s *shop) {
		s.while(func(string, uint64) { server.Kill(); server.Start() })
		s.answers(nothing, s.gets, "201 replayed")
	})
	try("server killed while the handler runs, restarted later", newHastyShop, core.Record{}, once, func(server *backend.Server, s *shop) {
		s.while(first(server.Kill))
		s.answers(func() { require.True(s.t, s.saw(core.Unsettled)); server.Start() }, s.until, "201 replayed")
	})
	try("server frozen beyond the deadline before the claim, thawed", newHastyShop, core.Record{}, once,
		func(server *backend.Server, s *shop) {
			// The claim that was under way may have been made; then it is in the way until it
			// is released or its lease passes.
			s.refuses(func(string) { server.Freeze() }, server.Thaw, s.until)
		})
	try("server frozen beyond the deadline while the handler runs, thawed", newHastyShop, core.Record{Abandoned: core.Uncertain(nil)}, once,
		func(server *backend.Server, s *shop) {
			s.while(func(string, uint64) { server.Freeze() })
			s.answers(func() { require.True(s.t, s.saw(core.Unsettled)); server.Thaw() }, s.until, "201 replayed")
		})
}
