package core_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
)

func sealUnder(names ...string) *core.Seal {
	s := &core.Seal{DigestKey: secret("digest").Key}
	for _, name := range names {
		s.Keys = append(s.Keys, secret(name))
	}
	return s
}

func allowing(s *core.Seal) *core.Seal {
	s.AllowUnsealed = true
	return s
}

// sealed is a service on records; nil: it does not seal.
type sealed struct {
	*core.Engine
	events
	log strings.Builder
}

func sealedBy(records store.Store, seal *core.Seal) *sealed {
	var s sealed
	s.Engine = core.MustNew(core.Config{User: byUser, Store: records, Seal: seal,
		Observe: core.Observers(s.add, core.LogEvents(slog.New(slog.NewTextHandler(&s.log, nil)), slog.LevelDebug)),
		Remark:  func(context.Context) string { return "order of a book" }})
	return &s
}

// refused says that the duplicate that came last was refused, because something in the store can't be opened.
func (s *sealed) refused(t *testing.T, code codes.Code, why string) {
	t.Helper()
	last := s.last()
	assert.Equal(t, []any{core.Refused, code}, []any{last.Kind, last.Code})
	assert.ErrorIs(t, last.Err, core.ErrSealed)
	assert.ErrorContains(t, last.Err, why)
	assert.Contains(t, s.log.String(), "level=WARN")
	assert.NotContains(t, fmt.Sprint(last.Err, s.log.String()), "0123456789")
}

// record returns what the store has under a key.
func record(t *testing.T, records store.Store, key string) store.Record {
	t.Helper()
	r, err := records.Capabilities().Inspect.Lookup(t.Context(), key)
	require.NoError(t, err)
	return r
}

// plant gives an operation another result.
func plant(t *testing.T, records store.Store, of store.Record, result []byte) {
	t.Helper()
	require.NoError(t, records.Capabilities().Inspect.Change(t.Context(), of.Key, of, store.Change{}))
	claim := store.Claim{Owner: store.NewOwner(), Fingerprint: of.Fingerprint, Lease: time.Minute}
	_, err := records.Acquire(t.Context(), of.Key, claim)
	require.NoError(t, err)
	require.NoError(t, records.Complete(t.Context(), of.Key, claim.Owner, result, time.Minute))
}

// sealToken is one that was issued once: it is good in all stores.
var sealToken struct {
	sync.Once
	text string
}

// duplicates are the ways to get a stored result, and how one asks for it. Each returns the code of a refusal, or what was replayed.
var duplicates = map[string]func(t *testing.T, e *core.Engine) string{
	"parameters": func(t *testing.T, e *core.Engine) string {
		return outcome(t, e.MustGuard(core.Policy{}), post(`{"n":1}`, nil))
	},
	"client key": func(t *testing.T, e *core.Engine) string {
		return outcome(t, e.MustGuard(core.Policy{Key: core.Header(core.Required)}), post(`{"n":1}`, nil).withKey("k"))
	},
	"record that outlives it": func(t *testing.T, e *core.Engine) string {
		p := core.Policy{Key: core.Header(core.Required), RefuseExpired: time.Hour}
		return outcome(t, e.MustGuard(p), post(`{"n":1}`, nil).withKey("k"))
	},
	"waiter": func(t *testing.T, e *core.Engine) string {
		p := core.Policy{Key: core.Header(core.Required), Duplicate: core.Wait(time.Second)}
		return outcome(t, e.MustGuard(p), post(`{"n":1}`, nil).withKey("k"))
	},
	"token": func(t *testing.T, e *core.Engine) string {
		g := e.MustGuard(core.Policy{Name: "pay", Key: core.Token(shopTokens)})
		sealToken.Do(func() { sealToken.text = tokenFor(t, g, "alice") })
		return outcome(t, g, submit(sealToken.text, "&n=1", nil))
	},
	"task": func(t *testing.T, e *core.Engine) string {
		task := e.MustTask(core.TaskPolicy{Name: "mail"})
		r, err := core.Do(t.Context(), task, core.Call{Key: "k", Fingerprint: "f"},
			func(context.Context) (string, error) { return "sent", nil })
		switch refusal := new(core.Refusal); {
		case errors.As(err, &refusal):
			return string(refusal.Code)
		case r.Replayed:
			return "replay"
		}
		return fmt.Sprint("attempt ", r.Attempt)
	},
	"rejected failure": func(t *testing.T, e *core.Engine) string {
		c := post(`{"n":1}`, nil).withKey("k")
		c.handler = handlerOf(422)
		g := e.MustGuard(core.Policy{Key: core.Header(core.Required), Duplicate: core.Reject(""), Record: core.Record{OnFailure: core.Keep},
			Failed: core.FailedByAnyError})
		if got := outcome(t, g, c); got != string(codes.Duplicate) {
			return got
		}
		assert.Contains(t, string(c.response.Body), "did not succeed")
		return "replay"
	},
}

// TestSeal: duplicates get the stored result from whoever has its key, and from nobody else.
func TestSeal(t *testing.T) {
	for name, ask := range duplicates {
		t.Run(name, func(t *testing.T) {
			records := newStore(t)
			first := sealedBy(records, sealUnder("b", "a"))
			assert.Equal(t, "attempt 1", ask(t, first.Engine))
			key := first.last().Key.Raw()
			was := record(t, records, key)
			assert.NotContains(t, fmt.Sprintf("%s %s", was.Result, was.Remark), "book")

			for _, ring := range [][]string{{"b", "a"}, {"c", "b"}, {"a", "b"}} {
				s := sealedBy(records, sealUnder(ring...))
				require.Equal(t, "replay", ask(t, s.Engine), ring)
				assert.Equal(t, "order of a book", s.last().Remark)
			}
			other := sealedBy(records, sealUnder("a"))
			require.Equal(t, string(codes.ResultUnavailable), ask(t, other.Engine))
			other.refused(t, codes.ResultUnavailable, `key "b"`)
			assert.Equal(t, "(unreadable)", other.last().Remark)

			changed := append([]byte(nil), was.Result...)
			changed[len(changed)-1] ^= 1
			plant(t, records, was, changed)
			require.Equal(t, string(codes.ResultUnavailable), ask(t, first.Engine))
			first.refused(t, codes.ResultUnavailable, "changed")
		})
	}
}

// TestSealWaiters: who waits gets the answer, from the store or, if the run leaves no record, from the run.
func TestSealWaiters(t *testing.T) {
	for name, first := range map[string]func() *call{
		"a record":  func() *call { return post(`{"n":1}`, nil) },
		"no record": func() *call { return put(1, nil) },
	} {
		bubble(t, name, func(t *testing.T) {
			s := sealedBy(newStore(t), sealUnder("a"))
			g := s.MustGuard(core.Policy{Duplicate: core.Wait(time.Minute)})
			running, duplicate := first(), first()
			running.handler = slowly(time.Second, 201, "once")
			go serve(t, g, running)
			synctest.Wait()
			assert.Equal(t, "replay", outcome(t, g, duplicate))
			assert.Equal(t, "once", string(duplicate.response.Body))
		})
	}
}

// TestSealOfEvents: the sender of an event whose answer can't be opened is not to come again.
func TestSealOfEvents(t *testing.T) {
	records, ctx, p := newStore(t), core.WithCallerEvent(t.Context(), "sender", "e"), core.SignedEvent()
	p.Name = "hooks"
	require.Equal(t, 1, serveFor(t, ctx, sealedBy(records, sealUnder("b")).MustGuard(p), post("{}", nil)).ran)
	s := sealedBy(records, sealUnder("a"))
	again := serveFor(t, ctx, s.MustGuard(p), post("{}", nil))
	assert.Equal(t, []any{0, 200, 0, core.Replayed}, []any{again.ran, again.response.Status, len(again.response.Body), s.last().Kind})
	assert.ErrorIs(t, s.last().Err, core.ErrSealed)
}

// TestSealOfRuns: what a run has sealed for a store is opened in its own operation only, and is no result.
func TestSealOfRuns(t *testing.T) {
	records := newStore(t)
	s := sealedBy(records, sealUnder("a"))
	g := s.MustGuard(core.Policy{Key: core.Header(core.Required)})
	within := func(key string, do func(*core.Run)) {
		handler := func(ctx context.Context) adapter.Capture { do(core.RunFrom(ctx)); return answer(201, "") }
		serve(t, g, post("{}", nil).withKey(key).doing(handler))
	}
	var stored []byte
	within("k", func(r *core.Run) {
		stored = r.Seal([]byte("value"))
		value, err := r.Open(stored)
		assert.NoError(t, err)
		assert.Equal(t, "value", string(value))
	})
	plant(t, records, record(t, records, s.last().Key.Raw()), stored)
	assert.Equal(t, string(codes.ResultUnavailable), outcome(t, g, post("{}", nil).withKey("k")))
	s.refused(t, codes.ResultUnavailable, "another operation's")
	within("j", func(r *core.Run) {
		_, err := r.Open(stored)
		assert.ErrorIs(t, err, core.ErrSealed)
	})
	assert.NotContains(t, string(stored), "value")
}

// TestSealSwapped: a result is good under its own key only.
func TestSealSwapped(t *testing.T) {
	records := newStore(t)
	s := sealedBy(records, sealUnder("a"))
	g := s.MustGuard(core.Policy{})
	ask := func(body string) *call { // under keys that differ at their ends
		c := post(body, nil)
		c.header.Set("X-User", strings.Repeat("u", 64))
		return c
	}
	outcome(t, g, ask(`{"n":1}`))
	one := record(t, records, s.last().Key.Raw())
	outcome(t, g, ask(`{"n":2}`))
	two := record(t, records, s.last().Key.Raw())
	plant(t, records, two, one.Result)
	assert.Equal(t, string(codes.ResultUnavailable), outcome(t, g, ask(`{"n":2}`)))
	s.refused(t, codes.ResultUnavailable, "another operation's")
	plant(t, records, record(t, records, two.Key), two.Result)
	assert.Equal(t, "replay", outcome(t, g, ask(`{"n":2}`)))
}

// TestSealOfBefore: what was stored without a Seal is read if that is allowed. What a Seal has made is none without it. A key that
// is made of parameters is another one.
func TestSealOfBefore(t *testing.T) {
	for name, ask := range duplicates {
		t.Run(name, func(t *testing.T) {
			records := newStore(t)
			require.Equal(t, "attempt 1", ask(t, sealedBy(records, nil).Engine))
			allowed := sealedBy(records, allowing(sealUnder("a")))
			if name == "parameters" {
				assert.Equal(t, "attempt 1", ask(t, allowed.Engine))
				return
			}
			assert.Equal(t, "replay", ask(t, allowed.Engine))
			assert.Equal(t, "order of a book", allowed.last().Remark)
			strict := sealedBy(records, sealUnder("a"))
			assert.Equal(t, string(codes.KeyReused), ask(t, strict.Engine), "its fingerprint is none that it knows")
		})
	}
	records := newStore(t)
	before, now := sealedBy(records, nil), sealedBy(records, sealUnder("a"))
	ignoring := core.Policy{Key: core.Header(core.Required, core.IgnoreFingerprint())}
	require.Equal(t, "attempt 1", outcome(t, before.MustGuard(ignoring), post(`{"n":1}`, nil).withKey("k")))
	assert.Equal(t, string(codes.ResultUnavailable), outcome(t, now.MustGuard(ignoring), post(`{"n":1}`, nil).withKey("k")))
	now.refused(t, codes.ResultUnavailable, "not sealed")
	require.Equal(t, "attempt 1", outcome(t, now.MustGuard(ignoring), post(`{"n":1}`, nil).withKey("j")))
	assert.Equal(t, string(codes.ResultUnavailable), outcome(t, before.MustGuard(ignoring), post(`{"n":1}`, nil).withKey("j")))
	before.refused(t, codes.ResultUnavailable, "no Config.Seal")
}

// TestSealRollout: in each of the deployments that switch a Seal on, processes know the operations of those before and after them.
func TestSealRollout(t *testing.T) {
	opening := allowing(sealUnder("a"))
	opening.OpenOnly = true
	order := []*core.Seal{nil, opening, allowing(sealUnder("a"))}
	for i := range 4 {
		p := core.Policy{Key: core.Header(core.Required)}
		if i > 1 {
			p.Digest = core.SHA256
		}
		records := newStore(t)
		older, newer := order[i%2], order[i%2+1]
		for name, ask := range duplicates {
			require.Equal(t, "attempt 1", ask(t, sealedBy(records, older).Engine), name)
			if name == "parameters" && i%2 == 1 {
				require.Equal(t, "attempt 1", ask(t, sealedBy(records, newer).Engine), "it is another key")
			}
			assert.Equal(t, "replay", ask(t, sealedBy(records, newer).Engine), name)
			records = newStore(t)
			require.Equal(t, "attempt 1", ask(t, sealedBy(records, newer).Engine), name)
			if name != "parameters" {
				assert.Equal(t, "replay", ask(t, sealedBy(records, older).Engine), name)
			}
			records = newStore(t)
		}
		before, now := sealedBy(records, older), sealedBy(records, newer)
		c := post(`{"n":1}`, nil).withKey("k")
		c.handler = abandoning
		serve(t, before.MustGuard(p), c)
		assert.Equal(t, string(codes.KeyReused), outcome(t, now.MustGuard(p), post(`{"n":2}`, nil).withKey("k")))
		assert.Equal(t, "attempt 2", outcome(t, now.MustGuard(p), post(`{"n":1}`, nil).withKey("k")))
		assert.Equal(t, "replay", outcome(t, now.MustGuard(p), post(`{"n":1}`, nil).withKey("k")))
		assert.Equal(t, string(codes.KeyReused), outcome(t, now.MustGuard(p), post(`{"n":2}`, nil).withKey("k")))
	}
}

// TestSealSteps: steps that can't be opened are not begun again, whatever the policy: not until somebody has the key.
func TestSealSteps(t *testing.T) {
	for name, p := range map[string]core.Policy{
		"replay": {}, "fail open": {FailOpen: true}, "wait": {Duplicate: core.Wait(time.Second)},
		"uncertain": {Record: core.Record{Abandoned: core.Uncertain(nil)}}, "client key": {Key: core.Header(core.Required)},
	} {
		for _, local := range []bool{true, false} {
			bubble(t, fmt.Sprint(name, " ", local), func(t *testing.T) {
				records := newStore(t)
				if !local {
					can := records.Capabilities()
					can.Local = false
					records = &spy{Store: records, can: &can}
				}
				charged := 0
				work := func(e *sealed, status int) string {
					ran := "no attempt"
					c := post(`{"n":1}`, nil).withKey("k").doing(func(ctx context.Context) adapter.Capture {
						ran = fmt.Sprint("attempt ", core.RunFrom(ctx).Attempt())
						_, err := core.Step(ctx, "charge", func(context.Context) (int, error) { charged++; return 1, nil })
						if err != nil {
							return answer(500, err.Error())
						}
						return answer(status, "")
					})
					serve(t, e.MustGuard(p), c)
					if code := c.code(); code != "" {
						return code
					}
					return fmt.Sprint(ran, ", ", c.response.Status)
				}
				require.Equal(t, "attempt 1, 502", work(sealedBy(records, sealUnder("b", "a")), 502))
				for range 2 {
					s := sealedBy(records, sealUnder("a"))
					require.Equal(t, string(codes.StoreUnavailable), work(s, 201))
					s.refused(t, codes.StoreUnavailable, `steps: sealed under the key "b"`)
				}
				require.Regexp(t, `^attempt \d, 201$`, work(sealedBy(records, sealUnder("b", "a")), 201))
				assert.Equal(t, 1, charged)
			})
		}
	}
}

// TestSealStepsWithoutSeal: a service that has none does not take sealed steps for none.
func TestSealStepsWithoutSeal(t *testing.T) {
	records := newStore(t)
	p := core.Policy{Key: core.Header(core.Required, core.IgnoreFingerprint())}
	charge := func(e *sealed) (err error) {
		serve(t, e.MustGuard(p), post("{}", nil).withKey("k").doing(func(ctx context.Context) adapter.Capture {
			_, err = core.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
			return answer(502, "")
		}))
		return err
	}
	require.NoError(t, charge(sealedBy(records, sealUnder("a"))))
	assert.ErrorIs(t, charge(sealedBy(records, nil)), core.ErrSealed)
	assert.NoError(t, charge(sealedBy(records, sealUnder("a"))))
}

// TestSealDigests: who reads a key or a fingerprint can't try out parameters: not alone, and not as a user of the service.
func TestSealDigests(t *testing.T) {
	records := newStore(t)
	e := sealedBy(records, sealUnder("a"))
	byParams, byKey := e.MustGuard(core.Policy{}), e.MustGuard(core.Policy{Key: core.Header(core.Required)})
	request := func(user string) *core.Request {
		c := post("", nil).withKey("k")
		c.header.Set("X-User", user)
		return &core.Request{Method: "POST", Route: "/orders", ContentType: "application/json", Body: []byte(`{"n":1}`), Headers: c}
	}
	digests := map[string]bool{}
	for _, user := range []string{"alice", "bob"} {
		key, _, err := byParams.Key(request(user))
		require.NoError(t, err)
		of, p, _ := strings.Cut(key.Raw(), "P=")
		assert.Equal(t, hmacOf(of+"P=\n"+`{"n":1}`), p, "the form of docs/records.md")
		key, fingerprint, err := byKey.Key(request(user))
		require.NoError(t, err)
		assert.Equal(t, hmacOf(key.Raw()+"\n"+`{"n":1}`), fingerprint)
		digests[p], digests[fingerprint] = true, true
	}
	assert.Len(t, digests, 4)
	key, _, err := sealedBy(records, sealUnder("b", "a")).MustGuard(core.Policy{Digest: core.SHA256}).Key(request("bob"))
	require.NoError(t, err)
	_, p, _ := strings.Cut(key.Raw(), "P=")
	assert.True(t, digests[p], "neither the ring nor Policy.Digest changes it")

	task := e.MustTask(core.TaskPolicy{Name: "mail"})
	digest := task.Digest([]byte("to alice"))
	assert.Equal(t, hmacOf("idem:U=M=DO%20mailK=\nto alice"), digest)
	assert.NotEqual(t, digest, e.MustTask(core.TaskPolicy{Name: "letter"}).Digest([]byte("to alice")))
	sum := sha256.Sum256([]byte("to alice"))
	assert.Equal(t, hex.EncodeToString(sum[:]), sealedBy(records, nil).MustTask(core.TaskPolicy{Name: "mail"}).Digest([]byte("to alice")))
	long := strings.Repeat("to alice", 9)
	one := func(context.Context) (int, error) { return 1, nil }
	for _, fingerprint := range []string{"", long, "to alice"} {
		_, err = core.Do(t.Context(), task, core.Call{Key: "k" + fingerprint, Fingerprint: fingerprint}, one)
		require.NoError(t, err)
		key = e.last().Key
		want := ""
		if fingerprint != "" {
			want = hmacOf(key.Raw() + "\n" + fingerprint)
		}
		assert.Equal(t, want, record(t, records, key.Raw()).Fingerprint)
	}
	_, err = core.Do(t.Context(), task, core.Call{Key: "kto alice", Fingerprint: "to bob"}, one)
	assert.ErrorIs(t, err, codes.KeyReused)
}

func hmacOf(text string) string {
	mac := hmac.New(sha256.New, secret("digest").Key)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// TestSealForOperators: what they settle and remark is sealed; what they see is opened, or said not to be.
func TestSealForOperators(t *testing.T) {
	records := newStore(t)
	s := sealedBy(records, sealUnder("a"))
	g := s.MustGuard(core.Policy{})
	c := post(`{"n":1}`, nil)
	c.handler = abandoning
	serve(t, g, c)
	digest, key := s.last().Key.String(), s.last().Key.Raw()
	ops := func(e *sealed) (*operations.Operations, operations.Operation) {
		ops, err := operations.Of(e.Engine, operations.Options{})
		require.NoError(t, err)
		op, err := ops.Lookup(t.Context(), digest)
		require.NoError(t, err)
		return ops, op
	}
	own, op := ops(s)
	assert.Equal(t, "order of a book", op.Remark)
	refunded := &core.Response{Status: 202, Body: []byte("refunded")}
	require.NoError(t, own.Settle(t.Context(), op, refunded, time.Hour, operations.By{Actor: "ana", Reason: "the bank says so"}))
	r := record(t, records, key)
	assert.NotRegexp(t, "refunded|bank", string(r.Result)+r.Remark)
	serve(t, g, post(`{"n":1}`, nil))
	assert.Equal(t, "settle by ana: the bank says so", s.last().Remark)

	own, op = ops(s)
	answer, ok := own.Answer(op)
	require.True(t, ok)
	require.NoError(t, op.Unopened)
	assert.Equal(t, "refunded", string(answer.Body))
	for op, err := range own.List(t.Context(), operations.Query{}) {
		require.NoError(t, err)
		assert.Equal(t, "settle by ana: the bank says so", op.Remark)
	}
	for _, seal := range []*core.Seal{nil, sealUnder("b")} {
		other, op := ops(sealedBy(records, seal))
		assert.ErrorIs(t, op.Unopened, core.ErrSealed)
		assert.Empty(t, op.Result)
		assert.NotContains(t, op.Remark, "bank")
		_, ok := other.Answer(op)
		assert.False(t, ok)
	}
}

// TestOperatorsWithoutSeal: without its keys, or the will to seal, nothing of a service that seals is settled, and no reason is
// stored that everybody can read.
func TestOperatorsWithoutSeal(t *testing.T) {
	var seen events
	records := newStore(t)
	s := core.MustNew(core.Config{User: byUser, Store: records, Seal: sealUnder("a"), Observe: seen.add})
	g := s.MustGuard(core.Policy{})
	c := post(`{"n":1}`, nil)
	c.handler = abandoning
	serve(t, g, c)
	by := operations.By{Actor: "ana", Reason: "the bank says so"}
	lookup := func(e *core.Engine) (*operations.Operations, operations.Operation) {
		ops, err := operations.Of(e, operations.Options{})
		require.NoError(t, err)
		op, err := ops.Lookup(t.Context(), seen.last().Key.String())
		require.NoError(t, err)
		return ops, op
	}
	renamed, opening := sealUnder("b"), allowing(sealUnder("a"))
	renamed.Keys[0].Name, opening.OpenOnly = "a", true
	for _, seal := range []*core.Seal{sealUnder("b"), renamed, opening} {
		ops, op := lookup(core.MustNew(core.Config{User: byUser, Store: records, Seal: seal}))
		assert.ErrorIs(t, ops.Settle(t.Context(), op, &core.Response{Status: 202}, time.Hour, by), operations.ErrSealed)
	}
	plain := core.MustNew(core.Config{User: byUser, Store: records})
	ops, op := lookup(plain)
	assert.ErrorIs(t, ops.Settle(t.Context(), op, &core.Response{Status: 202}, time.Hour, by), operations.ErrSealed)
	require.NoError(t, ops.Release(t.Context(), op, by))
	assert.NotContains(t, record(t, records, op.Record.Key).Remark, "bank")
	ops, op = lookup(plain)
	assert.ErrorIs(t, ops.Settle(t.Context(), op, &core.Response{Status: 202}, time.Hour, by), operations.ErrSealed)
	ops, op = lookup(core.MustNew(core.Config{User: byUser, Store: records, Seal: sealUnder("new", "a")})) // s has no new one yet
	assert.Empty(t, op.Remark)
	require.NoError(t, ops.Settle(t.Context(), op, &core.Response{Status: 202}, time.Hour, by))
	_, op = lookup(s)
	assert.NoError(t, op.Unopened)
	assert.NotEmpty(t, op.Result)
}

// TestSealFaults: each is told, and none tells a key.
func TestSealFaults(t *testing.T) {
	text := func(s *core.Seal) string {
		entries := []string{"digest=" + base64.StdEncoding.EncodeToString(s.DigestKey)}
		for _, k := range s.Keys {
			entries = append(entries, k.Name+"="+base64.StdEncoding.EncodeToString(k.Key))
		}
		if s.OpenOnly {
			entries = append(entries, "open-only")
		}
		return strings.Join(entries, ",")
	}
	for name, tc := range map[string]struct {
		seal  *core.Seal
		field string
	}{
		"no key": {sealUnder(), "Keys"},
		"one name twice": {&core.Seal{DigestKey: secret("digest").Key, Keys: []core.Secret{secret("a"), {Name: "a", Key: secret("b").Key}}},
			"Keys"},
		"short":         {&core.Seal{DigestKey: secret("digest").Key, Keys: []core.Secret{{Name: "a", Key: secret("").Key[:31]}}}, "Keys"},
		"no reader":     {&core.Seal{Keys: sealUnder("a").Keys, DigestKey: secret("digest").Key, OpenOnly: true}, "OpenOnly"},
		"no digest key": {&core.Seal{Keys: sealUnder("a").Keys}, "DigestKey"},
		"one for both":  {&core.Seal{Keys: sealUnder("a").Keys, DigestKey: secret("a").Key}, "DigestKey"},
	} {
		_, err := core.New(core.Config{Seal: tc.seal})
		assert.Equal(t, []string{"Config.Seal." + tc.field}, faultyFields(t, err), name)
		assert.NotContains(t, err.Error(), "0123")
		_, err = core.ParseSeal(text(tc.seal))
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "0123")
	}
	want := allowing(sealUnder("b", "a"))
	got, err := core.ParseSeal(" allow-unsealed, " + text(want) + "\n")
	require.NoError(t, err)
	assert.Equal(t, want, got)
	for _, empty := range []string{"", " \n"} {
		_, err := core.ParseSeal(empty)
		assert.ErrorContains(t, err, "the text of a Seal is empty")
	}
	for _, bad := range []string{"digest", "digest=0123!", "0123456789abcdef", "0123456789abcdef=", "a:0123456789abcdef=",
		"a,0123456789abcdef==", "a b=0123456789abcdef", text(want) + ",", "Digest" + strings.TrimPrefix(text(want), "digest"),
		text(want) + ",digest=" + base64.StdEncoding.EncodeToString(want.DigestKey)} {
		_, err := core.ParseSeal(bad)
		assert.ErrorContains(t, err, "the text of a Seal")
		assert.NotContains(t, err.Error(), "0123")
	}

	e := core.MustNew(core.Config{User: byUser, Seal: want})
	encoded, err := json.Marshal(want)
	require.NoError(t, err)
	for _, v := range []any{core.Config{Seal: want}, want, *want, e, e.MustGuard(core.Policy{}), string(encoded)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
			assert.NotRegexp(t, "0123456789|48 49 50 51 52|0x30, 0x31, 0x32|3031323334|MDEyMzQ", fmt.Sprintf(verb, v))
		}
	}
}
