package adaptertest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/internal/keycases"
)

// runKeys sends each entry through the adapter and compares the key that reaches the
// store. Entries with the same policy, and the same middleware in front, share an application.
func runKeys(t *testing.T, h Harness) {
	var order []string
	groups := map[string][]keycases.Case{}
	for _, k := range keycases.All() {
		id, _ := json.Marshal([]any{k.Options, k.Consumed}) // strings and bools: cannot fail
		if groups[string(id)] == nil {
			order = append(order, string(id))
		}
		groups[string(id)] = append(groups[string(id)], k)
	}
	for _, same := range order {
		group := groups[same]
		store, err := newRecorder()
		if err != nil {
			t.Fatal(err)
		}
		engine, err := core.New(core.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		app := App{Consumed: group[0].Consumed}
		routed := map[string]bool{}
		for _, k := range group {
			if id := k.Method + " " + k.Route; !routed[id] {
				routed[id] = true
				g, err := engine.Guard(k.Policy())
				if err != nil {
					t.Fatalf("%s: %v", k.Name, err)
				}
				app.Routes = append(app.Routes, Route{Method: k.Method, Pattern: k.Route, Guard: g,
					// A failure, so that the same key is claimed by each entry that has it.
					Handler: func(c Call) error { return c.NoContent(503) }})
			}
		}
		addr := h.Start(t, app)
		for _, k := range group {
			t.Run(k.Name, func(t *testing.T) { runKey(t, addr, store, k) })
		}
	}
}

func runKey(tb testing.TB, addr string, store *recorder, k keycases.Case) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the rule: %s", k.Why)
		}
	})
	r := request{method: k.Method, target: k.Target, user: "-", media: "-", body: k.Text()}
	for _, h := range k.Headers {
		r.fields = append(r.fields, adapter.Field{Name: h[0], Value: h[1]})
	}
	store.mu.Lock()
	store.claims = nil
	store.mu.Unlock()
	c, err := dial(addr)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	defer c.Close()
	c.send(r)
	got, err := c.receive(k.Method)
	if err != nil {
		tb.Fatalf("no response: %v", err)
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	if k.Refusal != "" {
		if len(store.claims) > 0 || !strings.Contains(string(got.body), `"code":"`+string(k.Refusal)+`"`) {
			tb.Errorf("status %d, %s, and not the refusal %s", got.status, abridged(got.body), k.Refusal)
		}
		return
	}
	if want := (claimed{k.Key, k.Fingerprint}); len(store.claims) != 1 || store.claims[0] != want {
		tb.Errorf("the store has got\n\t%+v, not\n\t%+v (status %d, %s)", store.claims, want, got.status, abridged(got.body))
	}
}
