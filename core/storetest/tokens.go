package storetest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// useTokens has engines, as two processes of a service have them, let each of some tokens be used by 100
// requests at once.
func (s *env) useTokens(duplicate core.Duplicate) {
	s.Helper()
	policy := core.OneShotToken(core.MustTokens(core.TokenConfig{Secrets: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}}))
	policy.Name, policy.Duplicate = "checkout", duplicate
	var guards [2]*core.Guard
	store := s.spread()
	for i := range guards {
		guards[i] = core.MustNew(core.Config{Service: "storetest", Store: store(i), User: core.SharedByAllCallers(), StoreTimeout: patience}).MustGuard(policy)
	}
	for range s.rounds() / 20 {
		token, err := guards[0].NewToken(s.Context(), &core.Request{})
		if err != nil {
			s.Fatalf("NewToken: %v", err)
		}
		var runs atomic.Int32
		uses := make([]use, 100)
		together(len(uses), func(i int) {
			uses[i] = use{token: token, runs: &runs}
			if err := guards[i%2].Serve(s.Context(), &uses[i]); err != nil {
				s.Errorf("Serve: %v", err)
			}
		})
		if n := runs.Load(); n != 1 {
			s.Fatalf("of %d uses of one token, %d have run", len(uses), n)
		}
		last := use{token: token, runs: &runs}
		if err := guards[1].Serve(s.Context(), &last); err != nil || !last.replayed {
			s.Errorf("one more use was answered with %d %s (%v)", last.status, last.body, err)
		}
		for i := range uses {
			u := &uses[i]
			if u.refused == codes.InProgress && duplicate == core.Replay() {
				continue
			}
			if u.refused != "" || u.status != last.status || !bytes.Equal(u.body, last.body) || u.ran == u.replayed {
				s.Errorf("a use was answered with %d %s", u.status, u.body)
			}
		}
	}
}

// use is a request that uses a token, and what has become of it.
type use struct {
	token string
	runs  *atomic.Int32

	ran, replayed bool
	status        int
	body          []byte
	refused       codes.Code
}

var _ adapter.Exchange = (*use)(nil)

// Header implements [adapter.Headers].
func (u *use) Header(name string, i int) (string, int) {
	if name != core.TokenHeader {
		return "", 0
	}
	return u.token, 1
}

// Describe implements [adapter.Exchange].
func (u *use) Describe(r *core.Request) { r.Method, r.Route = http.MethodPost, "/checkout" }

// ReadBody implements [adapter.Exchange].
func (u *use) ReadBody(int64) ([]byte, error) { return nil, nil }

// Answer implements [adapter.Exchange].
func (u *use) Answer(r *core.Response) error {
	u.status, u.body = r.Status, bytes.Clone(r.Body)
	u.replayed, u.refused = r.Get(core.ReplayedHeader) != "", codes.Code(r.Get(core.RefusedHeader))
	return nil
}

// Pass implements [adapter.Exchange].
func (u *use) Pass(context.Context) error { return errors.New("storetest: it runs unprotected") }

// Run implements [adapter.Exchange].
func (u *use) Run(context.Context, int) (adapter.Capture, error) {
	u.runs.Add(1)
	u.ran, u.status, u.body = true, http.StatusCreated, []byte("your order is on its way")
	return adapter.Capture{Response: &core.Response{Status: u.status, Body: u.body}}, nil
}

// Deliver implements [adapter.Exchange].
func (u *use) Deliver([]core.Field) error { return nil }
