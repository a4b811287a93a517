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
	link := func(t *testing.T, p core.Policy) (*backend.Proxy, *shop) {
		t.Parallel()
		proxy, store := fresh(t)
		return proxy, newShop(t, store, p)
	}
	hasty := func(t *testing.T, p core.Policy) (*backend.Proxy, *shop) {
		t.Parallel()
		proxy, store := fresh(t)
		return proxy, newHastyShop(t, store, p)
	}
	t.Run("cut before the claim", func(t *testing.T) {
		proxy, s := link(t, core.Policy{})
		for _, op := range three {
			cut := proxy.CutBefore([]byte(op))
			require.Equal(t, "503 store_unavailable", s.send(op))
			<-cut
			require.Zero(t, s.ledger.of(op))
			s.until("201", op)
		}
		s.report(section, "link cut as the claim is sent", name, tally{executions: 3}, three...)
	})
	t.Run("cut after the claim", func(t *testing.T) {
		proxy, s := link(t, core.Policy{Record: core.Record{Lease: lease}})
		for _, op := range three {
			cut := proxy.CutAfter([]byte(op))
			require.Equal(t, "503 store_unavailable", s.send(op), "whether it is claimed is not known")
			<-cut
			require.Zero(t, s.ledger.of(op))
			s.until("201", op) // the claim that nobody holds is released
		}
		s.report(section, "link cut after the claim was made, its answer lost", name, tally{executions: 3}, three...)
	})
	t.Run("cut before the result", func(t *testing.T) {
		proxy, s := link(t, core.Policy{Record: core.Record{Abandoned: core.Uncertain(nil)}})
		s.while(func(op string, _ uint64) { proxy.CutBefore([]byte(op)) })
		for _, op := range three {
			require.Equal(t, "201", s.send(op))
			require.Equal(t, "201 replayed", s.send(op), "the second try has brought it there")
		}
		s.report(section, "link cut as the result is sent", name, tally{executions: 3}, three...)
	})
	t.Run("cut after the result", func(t *testing.T) {
		proxy, s := link(t, core.Policy{Record: core.Record{Abandoned: core.Uncertain(nil)}})
		s.while(func(op string, _ uint64) { proxy.CutAfter([]byte(op)) })
		for _, op := range three {
			require.Equal(t, "201", s.send(op))
			require.Equal(t, "201 replayed", s.send(op))
		}
		s.report(section, "link cut after the result was stored, its answer lost", name, tally{executions: 3}, three...)
	})
	t.Run("down before the claim", func(t *testing.T) {
		proxy, s := link(t, core.Policy{})
		for _, op := range three {
			proxy.Cut()
			require.Equal(t, "503 store_unavailable", s.send(op))
			require.Zero(t, s.ledger.of(op))
			proxy.Restore()
			s.until("201", op)
		}
		s.report(section, "link down before the claim, up later", name, tally{executions: 3}, three...)
	})
	for _, policy := range policies {
		t.Run("down from the handler on, "+policy.name, func(t *testing.T) {
			proxy, s := hasty(t, core.Policy{Record: core.Record{Abandoned: policy.abandoned}})
			s.while(func(_ string, attempt uint64) {
				if attempt == 1 {
					proxy.Cut()
				}
			})
			for _, op := range three {
				require.Equal(t, "201", s.send(op), "the client gets the real response")
				proxy.Restore()
				s.until(policy.last, op)
			}
			s.report(section, "link down before the result, up later; "+policy.name, name, policy.want, three...)
		})
	}
	t.Run("slower than the deadline", func(t *testing.T) {
		proxy, s := hasty(t, core.Policy{})
		for _, op := range three {
			proxy.Delay(2 * storeTimeout)
			require.Equal(t, "503 store_unavailable", s.send(op))
			require.Zero(t, s.ledger.of(op))
			proxy.Delay(0)
			s.until("201", op)
		}
		s.report(section, "link slower than the deadline before the claim", name, tally{executions: 3}, three...)
	})
	t.Run("stalled during the handler", func(t *testing.T) {
		proxy, s := hasty(t, core.Policy{Record: core.Record{Abandoned: core.Uncertain(nil)}})
		s.while(func(string, uint64) { proxy.Stall() })
		for _, op := range three {
			require.Equal(t, "201", s.send(op), "the client gets the real response")
			proxy.Resume()
			s.until(eitherWay, op)
		}
		s.report(section, "link stalled beyond the deadline from the handler on, then going on", name, tally{executions: 3}, three...)
	})
}
