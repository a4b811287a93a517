package faults_test

import (
	"testing"

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
	try("link cut after the claim was made, its answer lost", newShop, core.Record{Lease: lease}, once, func(proxy *backend.Proxy, s *shop) {
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
	for _, p := range policies {
		try("link down before the result, up later; "+p.name, newHastyShop, core.Record{Abandoned: p.abandoned}, p.want, func(proxy *backend.Proxy, s *shop) {
			s.while(first(proxy.Cut))
			s.answers(proxy.Restore, s.until, p.last)
		})
	}
	try("link slower than the deadline before the claim", newHastyShop, core.Record{}, once, func(proxy *backend.Proxy, s *shop) {
		s.refuses(func(string) { proxy.Delay(2 * storeTimeout) }, func() { proxy.Delay(0) }, s.until)
	})
	try("link stalled beyond the deadline from the handler on, then going on", newHastyShop, uncertain, once, func(proxy *backend.Proxy, s *shop) {
		s.while(func(string, uint64) { proxy.Stall() })
		s.answers(proxy.Resume, s.until, eitherWay)
	})
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
	for _, p := range policies {
		try("server killed while the handler runs, restarted later; "+p.name, newHastyShop, core.Record{Abandoned: p.abandoned}, p.want, func(server *backend.Server, s *shop) {
			s.while(first(server.Kill))
			s.answers(func() { require.True(s.t, s.saw(core.RunUnfinished)); server.Start() }, s.until, p.last)
		})
	}
	try("server frozen beyond the deadline before the claim, thawed", newHastyShop, core.Record{}, once, func(server *backend.Server, s *shop) {
		// The claim that was under way may have been made; then it is in the way until it
		// is released or its lease passes.
		s.refuses(func(string) { server.Freeze() }, server.Thaw, s.until)
	})
	try("server frozen beyond the deadline while the handler runs, thawed", newHastyShop, core.Record{Abandoned: core.Uncertain(nil)}, once, func(server *backend.Server, s *shop) {
		s.while(func(string, uint64) { server.Freeze() })
		s.answers(func() { require.True(s.t, s.saw(core.RunUnfinished)); server.Thaw() }, s.until, eitherWay)
	})
}
