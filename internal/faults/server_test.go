package faults_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/internal/backend"
)

// policies are what may become of a run whose result did not arrive, and what that means if
// it did not arrive for three operations.
var policies = []struct {
	name      string
	abandoned core.Recovery
	last      string
	want      tally
}{
	{"TakeOver", core.TakeOver(), "201", tally{executions: 6, duplicates: 3}},
	{"Uncertain", core.Uncertain(nil), "409 uncertain", tally{executions: 3}},
}

// durableServer breaks a server that keeps what it has acknowledged. fresh returns one with
// an empty store.
func durableServer(t *testing.T, section, name string, fresh func(t *testing.T) (*backend.Server, store.Store)) {
	t.Run("killed before the claim", func(t *testing.T) {
		server, store := fresh(t)
		s := newShop(t, store, core.Policy{})
		for _, op := range three {
			server.Kill()
			require.Equal(t, "503 store_unavailable", s.send(op))
			require.Zero(t, s.ledger.of(op))
			server.Start()
			s.until("201", op)
			require.Equal(t, "201 replayed", s.send(op))
		}
		s.report(section, "server killed before the claim, restarted", name, tally{executions: 3}, three...)
	})
	t.Run("killed and restarted during the handler", func(t *testing.T) {
		server, store := fresh(t)
		s := newShop(t, store, core.Policy{Record: core.Record{Lease: longLease}})
		s.while(func(string, uint64) { server.Kill(); server.Start() })
		for _, op := range three {
			require.Equal(t, "201", s.send(op))
			require.Equal(t, "201 replayed", s.send(op))
		}
		s.report(section, "server killed and restarted while the handler runs", name, tally{executions: 3}, three...)
	})
	for _, policy := range policies {
		t.Run("killed during the handler, "+policy.name, func(t *testing.T) {
			server, store := fresh(t)
			s := newHastyShop(t, store, core.Policy{Record: core.Record{Abandoned: policy.abandoned}})
			s.while(func(_ string, attempt uint64) {
				if attempt == 1 {
					server.Kill()
				}
			})
			for _, op := range three {
				require.Equal(t, "201", s.send(op), "the client gets the real response")
				require.True(t, s.saw(core.RunUnfinished))
				server.Start()
				s.until(policy.last, op)
			}
			s.report(section, "server killed while the handler runs, restarted later; "+policy.name, name, policy.want, three...)
		})
	}
	t.Run("frozen before the claim", func(t *testing.T) {
		server, store := fresh(t)
		s := newHastyShop(t, store, core.Policy{})
		for _, op := range three {
			server.Freeze()
			require.Equal(t, "503 store_unavailable", s.send(op))
			require.Zero(t, s.ledger.of(op))
			server.Thaw()
			// The claim that was under way may have been made; then it is in the way until it
			// is released or its lease passes.
			s.until("201", op)
			require.Equal(t, "201 replayed", s.send(op))
		}
		s.report(section, "server frozen beyond the deadline before the claim, thawed", name, tally{executions: 3}, three...)
	})
	t.Run("frozen during the handler", func(t *testing.T) {
		server, store := fresh(t)
		s := newHastyShop(t, store, core.Policy{Record: core.Record{Abandoned: core.Uncertain(nil)}})
		s.while(func(string, uint64) { server.Freeze() })
		for _, op := range three {
			require.Equal(t, "201", s.send(op), "the client gets the real response")
			require.True(t, s.saw(core.RunUnfinished))
			server.Thaw()
			s.until(eitherWay, op)
		}
		s.report(section, "server frozen beyond the deadline while the handler runs, thawed", name, tally{executions: 3}, three...)
	})
}
