package core_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

func secret(name string) core.Secret {
	return core.Secret{Name: name, Key: []byte("0123456789abcdef0123456789abcdef" + name)}
}

// shop is a service on a store, whose handlers charge.
type shop struct {
	t     *testing.T
	e     *core.Engine
	guard *core.Guard
	token string

	run *core.Run // the latest
	key string    // that it has derived
}

var shopTokens = tokensFor(tokenSecret)

// kinds are the kinds of keys. Somebody has chosen those that are not made of parameters, and no tokens.
var kinds = map[string]core.Policy{
	"parameters": {}, "token": {Name: "pay", Key: core.Token(shopTokens)}, "client key": {Key: core.Header(core.Required)},
	"function": {Key: core.Func(func(r *core.Request) (string, error) { return "f", nil })},
}

func open(t *testing.T, records store.Store, p core.Policy, secrets ...string) *shop {
	c := core.Config{User: byUser, Store: records}
	for _, name := range secrets {
		c.Secrets = append(c.Secrets, secret(name))
	}
	s := &shop{t: t, e: core.MustNew(c)}
	for _, own := range c.Secrets {
		clear(own.Key) // the engine has its own
	}
	s.guard = s.e.MustGuard(p)
	if p.Name == "pay" {
		s.token = tokenFor(t, s.guard, "alice")
	}
	return s
}

// pay sends a form. The handler, if it runs, derives a key for its charge, and what then ends it. pay returns the key, or the
// code of a refusal.
func (s *shop) pay(amount string, end func(*core.Run) adapter.Capture) string {
	s.t.Helper()
	c := submit(s.token, "&amount="+amount, nil).withKey("k-1").doing(func(ctx context.Context) (a adapter.Capture) {
		var err error
		s.run = core.RunFrom(ctx)
		s.key, err = s.run.Derive("stripe/charge")
		require.NoError(s.t, err)
		return end(s.run)
	})
	s.run, s.key = nil, ""
	_ = serveUntilPanic(s.guard, c)
	if code := c.code(); code != "" && s.run == nil {
		return code
	}
	return s.key
}

func status(code int, fields ...core.Field) func(*core.Run) adapter.Capture {
	return func(*core.Run) adapter.Capture { return answer(code, "", fields...) }
}

// returning answers with an error that nobody has rendered.
func returning(err error) func(*core.Run) adapter.Capture {
	return func(*core.Run) adapter.Capture {
		return adapter.Capture{Ending: adapter.Empty, Response: &core.Response{Status: 200}, Err: err}
	}
}

// TestADerivedKeyOfAFailedAttempt: what has failed so that another try makes sense is tried with the same key, and
// what has failed for good is another operation.
func TestADerivedKeyOfAFailedAttempt(t *testing.T) {
	for kind, policy := range kinds {
		chosen := kind == "client key" || kind == "function"
		for name, tc := range map[string]struct {
			end    func(*core.Run) adapter.Capture
			policy func(*core.Policy)
			goesOn bool
			free   bool // what is left is no takeover
			code   string
		}{
			"502":                  {end: status(502), goesOn: true, free: true},
			"429":                  {end: status(429), goesOn: true, free: true},
			"403, Retry-After":     {end: status(403, core.Field{Name: "Retry-After", Value: "1"}), goesOn: true, free: true},
			"a panic":              {end: func(*core.Run) adapter.Capture { panic("boom") }, goesOn: true, free: true},
			"no answer":            {end: func(*core.Run) adapter.Capture { return unrendered(t.Context()) }, goesOn: true, free: true},
			"refusal, 503":         {end: returning(core.NewRefusal(codes.StoreUnavailable, nil)), goesOn: true, free: true},
			"refusal, 422":         {end: returning(core.NewRefusal(codes.KeyReused, nil))},
			"refusal, Retry-After": {end: returning(core.NewRefusal(codes.InProgress, nil)), goesOn: true, free: true},
			"any other error":      {end: returning(errLater), goesOn: true, free: true},
			"under Uncertain": {end: status(502), policy: func(p *core.Policy) { p.Abandoned = core.Uncertain(nil) },
				goesOn: true, free: true},
			"402, released":  {end: func(r *core.Run) adapter.Capture { r.Release(); return answer(402, "") }},
			"502, released":  {end: func(r *core.Run) adapter.Capture { r.Release(); return answer(502, "") }},
			"502, abandoned": {end: func(r *core.Run) adapter.Capture { r.Abandon(); return answer(502, "") }, goesOn: true},
			"OnFailure: Abandon, Uncertain": {end: status(502), policy: func(p *core.Policy) {
				p.OnFailure, p.Abandoned = core.Abandon, core.Uncertain(nil)
			}, code: "uncertain"},
			"402, a failure": {end: status(402), policy: func(p *core.Policy) { p.Failed = core.FailedByAnyError }},
		} {
			bubble(t, kind+"/"+name, func(t *testing.T) {
				p := policy
				if tc.policy != nil {
					tc.policy(&p)
				}
				s := open(t, newStore(t), p, "s1")
				first := s.pay("5", tc.end)
				require.Regexp(t, "^[0-9a-f]{40}$", first)
				id := s.run.ID()
				time.Sleep(10 * time.Minute) // the token is too old for a first use by now
				if kind == "token" && tc.free && name == "429" {
					require.Equal(t, "token_expired", s.pay("6", status(201)), "another form")
					return
				}
				again := s.pay("5", status(502))
				if kind == "token" && !tc.goesOn && tc.code == "" {
					require.Equal(t, "token_expired", again)
					return
				}
				if tc.code != "" {
					require.Equal(t, tc.code, again)
					return
				}
				assert.Equal(t, tc.goesOn || chosen, again == first, "the key")
				assert.Equal(t, tc.goesOn, s.run.ID() == id)
				if !tc.goesOn {
					assert.EqualValues(t, 1, s.run.Attempt())
					return
				}
				assert.EqualValues(t, 2, s.run.Attempt())
				assert.Equal(t, !tc.free, s.run.Takeover())
				require.Equal(t, first, s.pay("5", status(201)), "and again")
				assert.EqualValues(t, 3, s.run.Attempt())
				assert.Equal(t, !tc.free, s.run.Takeover(), "a run that was never heard of is not forgotten for a failure")
				assert.Empty(t, s.pay("5", status(201)), "it is done")

				time.Sleep(48 * time.Hour)
				if kind != "token" {
					assert.Equal(t, chosen, s.pay("5", status(201)) == first, "the next operation under the same key")
					assert.NotEqual(t, id, s.run.ID())
				}
			})
		}
	}
}

// TestCorrectedParameters: after a failure, other parameters are another operation, and no reuse of a key.
func TestCorrectedParameters(t *testing.T) {
	for kind, policy := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, newStore(t), policy, "s1")
			first := s.pay("5", status(502))
			id := s.run.ID()
			corrected := s.pay("6", status(502))
			assert.NotEqual(t, id, s.run.ID(), kind)
			assert.False(t, s.run.Takeover(), kind)
			assert.Equal(t, kind == "client key" || kind == "function", corrected == first, kind)
			id = s.run.ID()
			assert.Equal(t, corrected, s.pay("6", status(201)), kind)
			assert.Equal(t, id, s.run.ID(), kind)
		})
	}
}

// TestDerivedKeysOfAllVersions: what one version has charged, the next must not charge again.
func TestDerivedKeysOfAllVersions(t *testing.T) {
	for kind, of := range map[string]func(*core.Run) string{
		"parameters": func(r *core.Run) string { id := r.ID(); return "O" + string(id[:]) },
		"client key": func(r *core.Run) string { return "K" + r.Key().Raw() },
	} {
		s := open(t, newStore(t), kinds[kind], "s1")
		key := s.pay("5", status(502))
		mac := hmac.New(sha256.New, secret("s1").Key)
		mac.Write([]byte("idem derive 1\x00\x0dstripe/charge" + of(s.run)))
		assert.Equal(t, hex.EncodeToString(mac.Sum(nil)[:20]), key, kind)
	}
}

// TestTwoCoffees: a second one, ordered when the first is forgotten, or is released on success, is another charge.
func TestTwoCoffees(t *testing.T) {
	for name, p := range map[string]core.Policy{
		"forgotten": {Record: core.Record{Retention: 2 * time.Second}}, "released": core.Exclusive(),
		"taken over and released": core.Exclusive(),
	} {
		bubble(t, name, func(t *testing.T) {
			s := open(t, newStore(t), p, "s1")
			if strings.HasPrefix(name, "taken") {
				s.pay("3", func(r *core.Run) adapter.Capture { r.Abandon(); return answer(500, "") })
			}
			first := s.pay("3", status(201))
			attempt := s.run.Attempt()
			time.Sleep(3 * time.Second)
			assert.NotEqual(t, first, s.pay("3", status(201)))
			assert.False(t, s.run.Takeover())
			if strings.HasPrefix(name, "taken") {
				assert.Equal(t, attempt+1, s.run.Attempt(), "numbers never go back")
			}
		})
	}
}

// TestALaterAttemptThatFails: what it has been told for good ends the operation. Before it has asked, nothing ends, unless it says so.
func TestALaterAttemptThatFails(t *testing.T) {
	quietly := func(end func(*core.Run)) func(s *shop) {
		return func(s *shop) {
			serve(s.t, s.guard, submit("", "&amount=5", nil).doing(func(ctx context.Context) adapter.Capture {
				end(core.RunFrom(ctx))
				return answer(402, "")
			}))
		}
	}
	crash, kept := func(r *core.Run) adapter.Capture { r.Abandon(); return answer(500, "") }, status(502)
	for name, tc := range map[string]struct {
		first            func(*core.Run) adapter.Capture
		second           func(s *shop)
		goesOn, takeover bool
	}{
		"a takeover asks":       {crash, func(s *shop) { s.pay("5", status(402)) }, false, false},
		"a takeover asks not":   {crash, quietly(func(*core.Run) {}), true, true},
		"a takeover releases":   {crash, quietly((*core.Run).Release), true, true},
		"one that was kept":     {kept, func(s *shop) { s.pay("5", status(402)) }, false, false},
		"… and asks not":        {kept, quietly(func(*core.Run) {}), true, false},
		"… and releases":        {kept, quietly((*core.Run).Release), false, false},
		"… and fails once more": {kept, func(s *shop) { s.pay("5", status(500)) }, true, false},
	} {
		s := open(t, newStore(t), core.Policy{}, "s1")
		key := s.pay("5", tc.first)
		id := s.run.ID()
		tc.second(s)
		again := s.pay("5", status(201))
		assert.EqualValues(t, 3, s.run.Attempt(), name)
		assert.Equal(t, tc.goesOn, again == key, name)
		assert.Equal(t, tc.goesOn, id == s.run.ID(), name)
		assert.Equal(t, tc.takeover, s.run.Takeover(), name)
	}
}

// TestDerivedKeysAreApart: by call, by user, by service and by secret.
func TestDerivedKeysAreApart(t *testing.T) {
	seen := map[string]string{}
	for _, tc := range []struct{ service, user, call, secret string }{
		{"shop", "alice", "stripe/charge", "s1"}, {"shop", "alice", "stripe/refund/1", "s1"}, {"shop", "alice", "stripe/refund/2", "s1"},
		{"shop", "bob", "stripe/charge", "s1"}, {"mail", "alice", "stripe/charge", "s1"}, {"shop", "alice", "stripe/charge", "s2"},
	} {
		e := core.MustNew(core.Config{User: byUser, Service: tc.service, Secrets: []core.Secret{secret(tc.secret)}})
		g := e.MustGuard(core.ClientKey())
		c := post("{}", nil).withKey("order-1").doing(func(ctx context.Context) adapter.Capture {
			key, err := core.RunFrom(ctx).Derive(tc.call)
			require.NoError(t, err)
			assert.NotContains(t, seen, key, "%v is as %s", tc, seen[key])
			seen[key] = fmt.Sprint(tc)
			same, _ := core.RunFrom(ctx).Derive(tc.call)
			assert.Equal(t, key, same)
			return answer(201, "")
		})
		c.header.Set("X-User", tc.user)
		serve(t, g, c)
	}
	assert.Len(t, seen, 6)
}

// TestRotationOfSecrets: an operation goes on with the secret with which it was begun. A lost record takes the newest.
func TestRotationOfSecrets(t *testing.T) {
	for kind, policy := range kinds {
		synctest.Test(t, func(t *testing.T) {
			records := newStore(t)
			s := open(t, records, policy, "s1")
			rotate := func(records store.Store, secrets ...string) {
				token := s.token
				s = open(t, records, policy, secrets...)
				s.token = token
			}
			first := s.pay("5", status(502))
			id := s.run.ID()
			rotate(records, "s1", "s2")
			assert.Equal(t, first, s.pay("5", status(502)), kind)
			rotate(records, "s2", "s1")
			assert.Equal(t, first, s.pay("5", func(r *core.Run) adapter.Capture { r.Abandon(); return answer(502, "") }), kind)
			assert.Equal(t, first, s.pay("5", status(502)), kind)
			assert.Equal(t, id, s.run.ID(), kind)
			second := s.pay("6", status(502))
			assert.NotEqual(t, first, second, kind)

			rotate(newStore(t), "s2")
			lost := s.pay("6", status(502))
			assert.Equal(t, kind == "client key" || kind == "function", lost == second, kind)

			rotate(records, "s1") // too early: not all operations of s2 are over
			var err error
			serve(t, s.guard, submit(s.token, "&amount=6", nil).withKey("k-1").doing(func(ctx context.Context) adapter.Capture {
				_, err = core.RunFrom(ctx).Derive("stripe/charge")
				return answer(502, "")
			}))
			assert.ErrorContains(t, err, `"s2"`, kind)
		})
	}
}

// TestDerivingAcrossATask: a task's key is chosen, and the error of its function is no answer.
func TestDerivingAcrossATask(t *testing.T) {
	records := newStore(t)
	e := core.MustNew(core.Config{Store: records, Secrets: []core.Secret{secret("s1")}})
	var keys []string
	failure := errors.New("bad gateway")
	work := func(err error) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			key, derr := core.RunFrom(ctx).Derive("mail")
			require.NoError(t, derr)
			keys = append(keys, key, core.RunFrom(ctx).ID().String())
			return nil, err
		}
	}
	_, err := do(t.Context(), e, "k", core.TaskPolicy{Name: "mail"}, work(failure))
	require.ErrorIs(t, err, failure)
	r, err := do(t.Context(), e, "k", core.TaskPolicy{Name: "mail"}, work(nil))
	require.NoError(t, err)
	assert.EqualValues(t, 2, r.Attempt)
	restarted := core.MustNew(core.Config{Secrets: []core.Secret{secret("s1")}}) // the record is lost
	_, err = do(t.Context(), restarted, "k", core.TaskPolicy{Name: "mail"}, work(nil))
	require.NoError(t, err)
	assert.Equal(t, keys[:2], keys[2:4])
	assert.Equal(t, keys[0], keys[4])
	assert.NotEqual(t, keys[1], keys[5])
}

// TestAWaiterAfterAFailure goes on with the operation. So does who comes after a claim that was given back without a run.
func TestAWaiterAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := newStore(t)
		p := core.Policy{Duplicate: core.Wait(time.Minute)}
		s := open(t, records, p, "s1")
		waits := open(t, records, p, "s1")
		waited := make(chan string)
		first := s.pay("5", func(*core.Run) adapter.Capture {
			go func() { waited <- waits.pay("5", status(502)) }()
			synctest.Wait()
			return answer(502, "")
		})
		assert.Equal(t, first, <-waited)
		require.NoError(t, waits.e.Drain(t.Context()))
		assert.Equal(t, "shutting_down", waits.pay("5", status(201)))
		assert.Equal(t, first, s.pay("5", status(201)))
		assert.EqualValues(t, 4, s.run.Attempt())
		assert.False(t, s.run.Takeover())
	})
}

// unseen is a store whose Lookup fails as often as left says.
type unseen struct {
	store.Store
	store.Inspector
	left int
}

func (u *unseen) Capabilities() store.Capabilities {
	can := u.Store.Capabilities()
	u.Inspector, can.Inspect = can.Inspect, u
	return can
}

func (u *unseen) Lookup(ctx context.Context, key string) (store.Record, error) {
	if u.left--; u.left >= 0 {
		return store.Record{}, errDown
	}
	return u.Inspector.Lookup(ctx, key)
}

// TestAnExpiredTokenKeepsItsOperation: a request that is refused, or waits, leaves what was kept for the next attempt.
func TestAnExpiredTokenKeepsItsOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, records := kinds["token"], &unseen{Store: newStore(t)}
		p.Duplicate = core.Wait(time.Minute)
		s, waits := open(t, records, p, "s1"), open(t, records, p, "s1")
		waits.token = s.token
		waited := make(chan string)
		first := s.pay("5", func(*core.Run) adapter.Capture {
			time.Sleep(10 * time.Minute)
			go func() { waited <- waits.pay("5", status(502)) }()
			synctest.Wait()
			return answer(502, "")
		})
		require.NotEmpty(t, first)
		assert.Equal(t, first, <-waited, "a waiter")
		assert.Equal(t, "token_expired", s.pay("6", status(201)), "other parameters")
		records.left = 1
		assert.Equal(t, "store_unavailable", s.pay("5", status(201)))
		assert.Equal(t, first, s.pay("5", status(402)))
		assert.EqualValues(t, 3, s.run.Attempt())
		key := s.run.Key()
		assert.Equal(t, "token_expired", s.pay("5", status(201)), "the operation has ended")
		r, err := records.Lookup(t.Context(), key.Raw())
		require.NoError(t, err)
		assert.EqualValues(t, 3, r.Attempt, "fencing tokens never go back")
	})
}

// TestDeriveErrors: without a secret, a name of the call, or a guard.
func TestDeriveErrors(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(core.Policy{})
	serve(t, g, post("{}", nil).after(func(ctx context.Context) {
		_, err := core.RunFrom(ctx).Derive("call")
		assert.ErrorContains(t, err, "Config.Secrets")
	}))
	g = core.MustNew(core.Config{User: byUser, Secrets: []core.Secret{secret("s1")}}).MustGuard(core.Policy{})
	serve(t, g, post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
		_, err := core.RunFrom(ctx).Derive("")
		assert.Error(t, err)
		return answer(502, "")
	}))
	assert.Equal(t, "attempt 1", outcome(t, g, post("{}", nil)), "nothing was derived")
	var run *core.Run
	serve(t, g, post("[]", nil).after(func(ctx context.Context) { run = core.RunFrom(ctx) }))
	_, ended := run.Derive("call")
	assert.ErrorIs(t, ended, store.ErrLost, "no other attempt would have that key")
	_, err := core.RunFrom(t.Context()).Derive("call")
	assert.ErrorIs(t, err, codes.NoRun)
}

// TestFaultsOfSecrets: each is reported, and no secret is printed.
func TestFaultsOfSecrets(t *testing.T) {
	long := strings.Repeat("n", 64)
	_, err := core.New(core.Config{Secrets: []core.Secret{secret("s1"), secret(long)}})
	require.NoError(t, err)
	for name, ring := range map[string][]core.Secret{
		"no name": {secret("")}, "a long name": {secret(long + "n")}, "a name of no letters": {secret("a b")},
		"repeated": {{Name: "s", Key: make([]byte, 32)}}, "one name twice": {secret("s1"), {Name: "s1", Key: secret("s2").Key}},
		"short": {{Name: "s", Key: make([]byte, 31)}}, "one key twice": {secret("s1"), {Name: "s2", Key: secret("s1").Key}},
	} {
		_, err := core.New(core.Config{Secrets: ring})
		assert.Equal(t, []string{"Config.Secrets"}, faultyFields(t, err), name)
		assert.NotContains(t, err.Error(), "0123")
	}
	_, err = core.New(core.Config{Service: "shop", Store: shared{newStore(t)}, Secrets: []core.Secret{secret("s1")}})
	assert.ErrorContains(t, err, "Checkpoint and Fail")
	c := core.Config{Secrets: []core.Secret{secret("s1")}}
	assert.Contains(t, fmt.Sprintf("%v %+v", c, c), "{Name:s1}")
	e := core.MustNew(core.Config{User: byUser, Secrets: c.Secrets})
	for _, v := range []any{c, c.Secrets, e, e.MustGuard(core.Policy{})} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
			assert.NotRegexp(t, "01234567|48 49 50 51 52|0x30, 0x31, 0x32, 0x33|3031323334353637", fmt.Sprintf(verb, v))
		}
	}
}

// TestRunsThatHoldNoClaim: a request that a guard lets pass has a run that says so.
func TestRunsThatHoldNoClaim(t *testing.T) {
	down := &spy{Store: newStore(t), acquire: func(context.Context) error { return errDown }}
	can := down.Store.Capabilities()
	can.Recall, can.Local = nil, false
	down.can = &can
	for name, tc := range map[string]struct {
		policy core.Policy
		key    []string
		code   codes.Code
		same   bool // in the next request
	}{
		"no key":               {core.Policy{Key: core.Header(core.Optional)}, nil, codes.KeyMissing, false},
		"FailOpen":             {core.Policy{FailOpen: true}, nil, codes.StoreUnavailable, false},
		"FailOpen, a key":      {core.Policy{Key: core.Header(core.Required), FailOpen: true}, []string{"k"}, codes.StoreUnavailable, true},
		"FailOpen, a function": {core.Policy{Key: kinds["function"].Key, FailOpen: true}, nil, codes.StoreUnavailable, true},
	} {
		g := core.MustNew(core.Config{User: byUser, Store: down, Secrets: []core.Secret{secret("s1")}}).MustGuard(tc.policy)
		var keys []string
		for range 2 {
			c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
				run := core.RunFrom(ctx)
				assert.True(t, run.Unprotected(), name)
				assert.EqualValues(t, 1, run.Attempt())
				assert.False(t, run.Takeover())
				assert.Zero(t, run.ID())
				assert.Zero(t, run.Owner())
				assert.NoError(t, run.Renew(ctx))
				began, err := run.Begun(ctx)
				assert.Equal(t, tc.same, err != nil, "%s: a key that was derived before", name)
				assert.True(t, tc.same || time.Since(began) < time.Minute, began)
				run.Abandon() // decides nothing
				_, err = core.RequireRun(ctx)
				assert.ErrorIs(t, err, tc.code, name)
				for range 2 {
					key, err := run.Derive("call")
					require.NoError(t, err)
					keys = append(keys, key)
					v, err := core.Step(ctx, "step", func(context.Context) (int, error) { return len(keys), nil })
					require.NoError(t, err)
					assert.Equal(t, len(keys), v, "each runs")
				}
				return answer(201, "")
			})
			if tc.key != nil {
				c.withKey(tc.key...)
			}
			assert.Equal(t, 1, serve(t, g, c).passed)
		}
		assert.Equal(t, keys[0], keys[1], name)
		assert.Equal(t, tc.same, keys[0] == keys[2], name)
	}

	// Two guards that let one request pass are in no conflict.
	failing := core.MustNew(core.Config{User: byUser, Store: down})
	open := core.Policy{Key: core.Header(core.Required), FailOpen: true}
	behind := post("{}", nil).withKey("k")
	serve(t, failing.MustGuard(open), post("{}", nil).withKey("k").after(func(ctx context.Context) {
		assert.NoError(t, failing.MustGuard(open).Serve(ctx, behind))
	}))
	assert.Equal(t, 1, behind.passed)

	// A run that holds a claim further out stays the run.
	e := core.MustNew(core.Config{User: byUser})
	var outer, inner *core.Run
	within := post("{}", nil).after(func(ctx context.Context) { inner = core.RunFrom(ctx) })
	serve(t, e.MustGuard(core.Policy{}), nested(t, post("{}", nil), e.MustGuard(core.Policy{Key: core.Header(core.Optional)}), within).
		after(func(ctx context.Context) { outer = core.RunFrom(ctx) }))
	assert.Equal(t, 1, within.passed)
	assert.False(t, inner.Unprotected())
	assert.Same(t, outer, inner)

	// A guard that is mounted twice, and has let the request pass while the store was down, claims it further in.
	odd := false
	down.acquire = func(context.Context) error {
		if odd = !odd; odd {
			return errDown
		}
		return nil
	}
	g := core.MustNew(core.Config{User: byUser, Store: down}).MustGuard(core.Policy{FailOpen: true})
	serve(t, g, nested(t, post("{}", nil), g, within))
	assert.False(t, inner.Unprotected())
	assert.NotSame(t, outer, inner)
	assert.True(t, core.RunFrom(t.Context()).Unprotected())
}
