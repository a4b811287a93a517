package operations_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/httpidem"
)

var by = operations.By{Actor: "ana", Reason: "the bank knows nothing of it"}

// service is a small one, whose POST /charges does not know at first whether it has charged.
type service struct {
	*testing.T
	log    bytes.Buffer
	events []core.Event
	engine *core.Engine
	ops    *operations.Operations
	guard  *core.Guard
	runs   atomic.Int64
	fails  bool
}

func newService(t *testing.T, c core.Config) *service {
	s := &service{T: t, fails: true}
	log := core.LogEvents(slog.New(slog.NewTextHandler(&s.log, nil)), slog.LevelInfo)
	c.User = core.UserFromHeader("X-User")
	c.Observe = func(ctx context.Context, ev core.Event) {
		s.events = append(s.events, ev)
		log(ctx, ev)
	}
	s.engine = core.MustNew(c)
	var err error
	s.ops, err = operations.Of(s.engine, operations.Options{})
	require.NoError(t, err)
	s.guard = s.engine.MustGuard(core.Policy{Name: "charges", Key: core.Header(core.Required),
		Record: core.Record{Abandoned: core.Uncertain(nil)}})
	return s
}

// charge sends POST /charges, and returns the status and the body.
func (s *service) charge(user, key string) (int, string) {
	s.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /charges", httpidem.New(s.guard)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := core.RunFrom(r.Context())
		if s.runs.Add(1); s.fails {
			run.Abandon()
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "attempt %d, takeover %t", run.Attempt(), run.Takeover())
	})))
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/charges", strings.NewReader("{}"))
	r.Header.Set("X-User", user)
	r.Header.Set("Idempotency-Key", key)
	mux.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// stuck makes an operation whose outcome is uncertain, and finds it by what is in the log.
func (s *service) stuck(key string) operations.Operation {
	s.Helper()
	s.charge("alice", key)
	s.log.Reset()
	status, body := s.charge("alice", key)
	require.Equal(s, http.StatusConflict, status, body)
	line := regexp.MustCompile(`msg="idem: refused".* key=([0-9a-f]{16}) operation=([0-9a-f]{32}) .*code=uncertain`).
		FindStringSubmatch(s.log.String())
	require.NotNil(s, line, s.log.String())
	op, err := s.ops.Lookup(s.Context(), line[1])
	require.NoError(s, err)
	same, err := s.ops.Lookup(s.Context(), " "+strings.ToUpper(line[2])+"\n")
	require.NoError(s, err)
	require.Equal(s, op.ID, same.ID)
	require.Equal(s, []any{store.Abandoned, "POST /charges", "alice", "charges", line[1]},
		[]any{op.State, op.Route, op.User, op.Policy, op.Digest})
	return op
}

// Who looks for an operation whose key is refused with key_expired finds why, and can let the key run again.
func TestExpired(t *testing.T) {
	now := time.Now()
	records, err := memstore.New(memstore.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	s := newService(t, core.Config{Store: records})
	s.fails = false
	s.guard = s.engine.MustGuard(core.Policy{Key: core.Header(core.Required), RefuseExpired: 24 * time.Hour,
		Record: core.Record{Retention: time.Hour}})
	s.charge("alice", "k")
	look := func() operations.Operation {
		op, err := s.ops.LookupKey(t.Context(), "alice", "", "k")
		require.NoError(t, err)
		return op
	}
	op := look()
	assert.False(t, op.Expired)
	assert.Equal(t, "Done: duplicates get its result for 1 h.", op.Explain())
	now = now.Add(2 * time.Hour)
	status, _ := s.charge("alice", "k")
	assert.Equal(t, http.StatusGone, status)
	op = look()
	assert.True(t, op.Expired)
	assert.Equal(t, "Done, and its result is no longer kept. Requests with its key are refused for 23 h, whatever their parameters.",
		op.Explain())
	_, answered := s.ops.Answer(op)
	assert.False(t, answered)
	assert.Error(t, s.ops.Release(t.Context(), op, by))
	require.NoError(t, s.ops.Forget(t.Context(), op, false, by))
	status, _ = s.charge("alice", "k")
	assert.Equal(t, http.StatusCreated, status)
	assert.EqualValues(t, 2, s.runs.Load())
}

func TestRelease(t *testing.T) {
	s := newService(t, core.Config{})
	op := s.stuck("k")
	require.NoError(t, s.ops.Release(t.Context(), op, by))
	s.fails = false
	status, body := s.charge("alice", "k")
	assert.Equal(t, 201, status)
	assert.Equal(t, "attempt 2, takeover true", body)
	assert.EqualValues(t, 2, s.runs.Load())

	// Who clicks once more, or too late, does nothing.
	err := s.ops.Release(t.Context(), op, by)
	require.ErrorIs(t, err, store.ErrMovedOn)
	ev := s.events[len(s.events)-1]
	assert.Equal(t, core.Event{Kind: core.Operated, Policy: "charges", Route: "POST /charges", Key: ev.Key, ID: op.ID, Attempt: 1,
		Action: "release", Actor: "ana", Reason: by.Reason, Err: err}, ev)
	assert.Equal(t, op.Digest, ev.Key.String())
	assert.Contains(t, s.log.String(), `action=release actor=ana reason="the bank knows nothing of it"`)
}

func TestSettle(t *testing.T) {
	s := newService(t, core.Config{})
	op := s.stuck("k")
	answer := &core.Response{Status: 402, Header: []core.Field{{Name: "content-type", Value: "text/plain"}},
		Body: []byte("the card was declined")}
	require.NoError(t, s.ops.Settle(t.Context(), op, answer, time.Hour, by))
	status, body := s.charge("alice", "k")
	assert.Equal(t, 402, status)
	assert.Equal(t, "the card was declined", body)
	assert.EqualValues(t, 1, s.runs.Load())

	op, err := s.ops.LookupKey(t.Context(), "alice", "POST /charges", "k")
	require.NoError(t, err)
	stored, ok := s.ops.Answer(op)
	require.True(t, ok)
	assert.Equal(t, core.Response{Status: 402, Header: []core.Field{{Name: "Content-Type", Value: "text/plain"}},
		Body: []byte("the card was declined")}, stored)
	assert.Equal(t, "settle by ana: the bank knows nothing of it", op.Remark)

	assert.ErrorIs(t, s.ops.Forget(t.Context(), op, false, operations.By{Actor: "ana"}), operations.ErrUnsigned)
	require.NoError(t, s.ops.Forget(t.Context(), op, false, operations.By{Actor: "ana", Reason: strings.Repeat("\u20ac", 100) + "\x00"}))
	s.charge("alice", "k")
	assert.EqualValues(t, 2, s.runs.Load(), "it is forgotten")
	_, err = s.ops.Lookup(t.Context(), op.ID.String())
	assert.ErrorIs(t, err, operations.ErrNotFound)
}

// What makes no sense, and what is forbidden, changes nothing.
func TestRefusedActions(t *testing.T) {
	forbidden := errors.New("ask bert")
	records := &moving{Store: newStore(t)}
	s := newService(t, core.Config{Store: records})
	var err error
	s.ops, err = operations.Of(s.engine, operations.Options{Audit: func(_ context.Context, a operations.Action) error {
		if a.Actor == "carl" {
			return forbidden
		}
		return nil
	}})
	require.NoError(t, err)
	op := s.stuck("k")
	answer := &core.Response{Status: 200}
	assert.ErrorIs(t, s.ops.Release(t.Context(), op, operations.By{Actor: "carl", Reason: "why not"}), forbidden)
	assert.ErrorIs(t, s.events[len(s.events)-1].Err, forbidden)
	assert.Error(t, s.ops.Settle(t.Context(), op, nil, time.Hour, by))
	assert.Error(t, s.ops.Settle(t.Context(), op, &core.Response{Status: 100}, time.Hour, by))
	assert.Error(t, s.ops.Settle(t.Context(), op, &core.Response{Status: 1000}, time.Hour, by))
	for _, unsent := range []core.Response{
		{Status: 200, Header: []core.Field{{Name: "Content-Type", Value: "text/plain\r\nSet-Cookie: a=b"}}},
		{Status: 200, Header: []core.Field{{Name: "Content-Type", Value: "text/plain\x00"}}},
		{Status: 200, Header: []core.Field{{Name: "X:\nY", Value: "z"}}},
		{Status: 200, Header: []core.Field{{Value: "of no name"}}},
		{Status: 204, Body: []byte("b")}, {Status: 205, Body: []byte("b")}, {Status: 304, Body: []byte("b")},
	} {
		assert.Error(t, s.ops.Settle(t.Context(), op, &unsent, time.Hour, by), "%+v", unsent)
	}
	assert.Error(t, s.ops.SettleTask(t.Context(), op, []byte("1"), time.Hour, by), "a request has a response")
	assert.Error(t, s.ops.Settle(t.Context(), op, answer, 0, by))
	assert.ErrorIs(t, s.ops.Release(t.Context(), op, operations.By{Reason: "anonymous"}), operations.ErrUnsigned)

	task := s.engine.MustTask(core.TaskPolicy{Name: "mail"})
	_, err = core.Do(t.Context(), task, core.Call{Key: "m"}, func(ctx context.Context) (int, error) {
		running, err := s.ops.LookupKey(ctx, "", "DO mail", "m")
		require.NoError(t, err)
		assert.ErrorIs(t, s.ops.Forget(ctx, running, false, by), operations.ErrRunning)
		assert.Error(t, s.ops.Release(ctx, running, by))
		assert.Error(t, s.ops.Settle(ctx, running, answer, time.Hour, by), "a task has a value")
		require.NoError(t, s.ops.Forget(ctx, running, true, by))
		return 0, core.RunFrom(ctx).Renew(ctx)
	})
	assert.ErrorIs(t, err, store.ErrLost)

	claim := store.Claim{Owner: store.NewOwner(), About: store.About{ID: store.NewID()}, Lease: time.Hour, Retention: time.Hour}
	_, err = records.Acquire(t.Context(), "idem:U=M=signupT=1", claim)
	require.NoError(t, err)
	require.NoError(t, records.Abandon(t.Context(), "idem:U=M=signupT=1", claim.Owner))
	token, err := s.ops.Lookup(t.Context(), claim.ID.String())
	require.NoError(t, err)
	assert.ErrorIs(t, s.ops.Forget(t.Context(), token, false, by), operations.ErrToken)
	require.NoError(t, s.ops.Settle(t.Context(), token, answer, time.Second, by))
	token, err = s.ops.Lookup(t.Context(), claim.ID.String())
	require.NoError(t, err)
	assert.Greater(t, token.Remaining, time.Minute, "the token could be used once more")
	again, err := s.ops.Lookup(t.Context(), op.Digest)
	require.NoError(t, err)
	assert.Equal(t, op.Record.About, again.About)
	records.move = func(key string) { // another operation begins under the key while one is looked for by its id
		require.NoError(t, records.Capabilities().Inspect.Change(t.Context(), key, op.Record, store.Change{}))
		claim.ID = store.NewID()
		_, err = records.Acquire(t.Context(), key, claim)
		require.NoError(t, err)
	}
	_, err = s.ops.Lookup(t.Context(), op.ID.String())
	assert.ErrorIs(t, err, operations.ErrNotFound)
	for _, text := range []string{"", "k", op.Digest[1:], op.Digest + "0", strings.Repeat("g", 16), strings.Repeat("0", 32)} {
		_, err := s.ops.Lookup(t.Context(), text)
		assert.ErrorContains(t, err, "neither", text)
	}
	_, err = operations.Of(core.MustNew(core.Config{Store: blind{}, Service: "shop"}), operations.Options{})
	assert.ErrorIs(t, err, operations.ErrNoInspector)
}

// An operator gets an error, and not a page that loads for ever.
func TestCallsOfTheStoreAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, core.Config{Service: "shop", StoreTimeout: 3 * time.Second, Store: hanging{newStore(t)}})
		for name, call := range map[string]func() error{
			"LookupKey": func() error { _, err := s.ops.LookupKey(t.Context(), "", "DO mail", "m"); return err },
			"Lookup":    func() error { _, err := s.ops.Lookup(t.Context(), strings.Repeat("1", 32)); return err },
			"Count":     func() error { _, err := s.ops.Count(t.Context()); return err },
			"Release": func() error {
				return s.ops.Release(t.Context(), operations.Operation{Record: store.Record{State: store.Abandoned}}, by)
			},
		} {
			start := time.Now()
			assert.ErrorIs(t, call(), context.DeadlineExceeded, name)
			assert.Equal(t, 3*time.Second, time.Since(start), name)
		}
	})
}

// hanging is a store on the other side of a cut link.
type hanging struct{ store.Store }

func (h hanging) Capabilities() store.Capabilities { return store.Capabilities{Inspect: h} }

func (hanging) Lookup(ctx context.Context, _ string) (store.Record, error) {
	<-ctx.Done()
	return store.Record{}, ctx.Err()
}

func (hanging) List(ctx context.Context, _ store.Query, _ string) ([]store.Record, string, error) {
	<-ctx.Done()
	return nil, "", ctx.Err()
}

func (hanging) Change(ctx context.Context, _ string, _ store.Record, _ store.Change) error {
	<-ctx.Done()
	return ctx.Err()
}

// moving is a store in which something happens before a record is looked up.
type moving struct {
	store.Store
	move func(key string)
}

func (m *moving) Capabilities() store.Capabilities {
	can := m.Store.Capabilities()
	can.Inspect = movingInspector{can.Inspect, m}
	return can
}

type movingInspector struct {
	store.Inspector
	*moving
}

func (m movingInspector) Lookup(ctx context.Context, key string) (store.Record, error) {
	if move := m.move; move != nil {
		m.move = nil
		move(key)
	}
	return m.Inspector.Lookup(ctx, key)
}

// List has an empty page in front.
func (m movingInspector) List(ctx context.Context, q store.Query, cursor string) ([]store.Record, string, error) {
	if cursor == "" {
		return nil, "more", nil
	}
	return m.Inspector.List(ctx, q, strings.TrimPrefix(cursor, "more"))
}

func newStore(t *testing.T) *memstore.Store {
	s, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	return s
}

type blind struct{ store.Store }

func (blind) Capabilities() store.Capabilities { return store.Capabilities{} }

// TestList: what needs somebody is first; users are found however they are stored; a list goes on where it stopped.
func TestList(t *testing.T) {
	now := time.Now()
	records, err := memstore.New(memstore.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	shop := newService(t, core.Config{Store: records, Service: "shop"})
	_, err = shop.engine.Nonces().Use(t.Context(), "demo", "n", time.Hour)
	require.NoError(t, err)
	mail := core.MustNew(core.Config{Store: records, Service: "mail"})
	done, err := core.Do(t.Context(), mail.MustTask(core.TaskPolicy{Name: "mail"}), core.Call{Key: "m", User: strings.Repeat("u", 65)},
		func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.False(t, done.Replayed)
	shop.fails = false
	shop.charge("bob", "done")
	shop.fails = true
	var want []string
	for i := range 5 {
		now = now.Add(time.Second)
		shop.charge("alice", fmt.Sprint(9-i))
		want = append(want, fmt.Sprint("charges POST /charges alice ", 9-i))
	}
	all, err := operations.Of(core.MustNew(core.Config{Store: records, LegacyPrefix: "idem:"}), operations.Options{})
	require.NoError(t, err)
	list := func(ops *operations.Operations, q operations.Query) (found []string, next string) {
		for op, err := range ops.List(t.Context(), q) {
			require.NoError(t, err)
			_, key, _ := strings.Cut(op.Key, "K=")
			found, next = append(found, fmt.Sprint(op.Policy, " ", op.Route, " ", op.User, " ", key)), op.Next
		}
		return found, next
	}
	// A service whose prefix begins like another one's does not see its records.
	app, err := operations.Of(core.MustNew(core.Config{Store: records, LegacyPrefix: "idem:sho"}), operations.Options{})
	require.NoError(t, err)
	found, _ := list(app, operations.Query{})
	assert.Empty(t, found)
	bobs, failed := "charges POST /charges bob done", 0
	found, _ = list(shop.ops, operations.Query{})
	assert.Equal(t, append(want, bobs), found)
	found, _ = list(all, operations.Query{})
	assert.Len(t, found, 7, "of all services, without the nonce")
	for from, i := "", 0; i < 3; i++ { // two at a time
		var part []string
		part, from = list(shop.ops, operations.Query{Limit: 2, From: from})
		assert.Equal(t, append(want, bobs)[2*i:2*i+2], part)
	}
	// Somebody stops in the middle of a page.
	for op, err := range shop.ops.List(t.Context(), operations.Query{States: []store.State{store.Abandoned}}) {
		require.NoError(t, err)
		found, _ = list(shop.ops, operations.Query{States: []store.State{store.Abandoned}, From: op.Next})
		assert.Equal(t, want[1:], found)
		break
	}
	// A record of 0.1.0 does not say how old it is.
	_, err = records.Acquire(t.Context(), "idem:shop:U=M=POST%20/oldK=k", store.Claim{Owner: store.NewOwner(), Lease: time.Hour})
	require.NoError(t, err)
	for q, n := range map[*operations.Query]int{
		{User: "alice"}: 5, {User: "ali"}: 0, {User: strings.Repeat("u", 65)}: 1, {Route: "POST /charges"}: 6, {Route: "DO mail"}: 1,
		{Policy: "charges"}: 6, {Policy: "mail"}: 1, {States: []store.State{store.Done}}: 2,
		{States: []store.State{store.Running}}: 1, {OlderThan: time.Hour}: 0,
	} {
		found, _ := list(all, *q)
		assert.Len(t, found, n, "%+v", q)
	}
	for _, from := range []string{"x", "9..", "-1..", "0..!", "0.x", "0..eA"} {
		for _, err := range shop.ops.List(t.Context(), operations.Query{States: []store.State{store.Done}, From: from}) {
			require.ErrorIs(t, err, store.ErrCursor, from)
			failed++
		}
	}
	assert.Equal(t, 6, failed, "a list that is silently empty")
	// Somebody looks at two, and does something about the second one.
	stuck := operations.Query{Limit: 2}
	var two []operations.Operation
	for op, err := range shop.ops.List(t.Context(), stuck) {
		require.NoError(t, err)
		two = append(two, op)
	}
	require.NoError(t, shop.ops.Release(t.Context(), two[1], by))
	stuck.From = two[1].Next
	found, next := list(shop.ops, stuck)
	assert.Equal(t, want[2:4], found)
	stuck.From, stuck.Limit = next, 0
	_, next = list(shop.ops, stuck)
	assert.Empty(t, next, "nothing follows")
	op, err := all.LookupKey(t.Context(), strings.Repeat("u", 65), "", "m")
	require.NoError(t, err)
	assert.Equal(t, "DO mail", op.Route)
	for _, other := range [][3]string{{"bob", "", "m"}, {"bob", "POST /charges", "don"}, {"bob", "POST /charges", ""},
		{"bob", "POST /other", "done"}, {"alice", "", "done"}} {
		_, err = shop.ops.LookupKey(t.Context(), other[0], other[1], other[2])
		assert.ErrorIs(t, err, operations.ErrNotFound, other)
	}
}

// TestUsers: a user is found whatever source it is from.
func TestUsers(t *testing.T) {
	header := func(name string) core.UserSource { return core.UserFromHeader(name) }
	for name, user := range map[string]struct {
		source core.UserSource
		header string
		caller string
	}{
		"plain": {header("X-User"), "X-User", ""},
		"like a mark": {core.UserFunc(func(*core.Request) (core.User, error) { return core.User{ID: "1#ada lovelace"}, nil }),
			"X-User", ""},
		"a secret":      {header("X-Api-Key"), "X-Api-Key", ""},
		"second source": {core.FirstUser(header("X-Other"), header("X-User")), "X-User", ""},
		"second secret": {core.FirstUser(header("X-Other"), header("X-Api-Key")), "X-Api-Key", ""},
		"of a caller":   {header("X-User"), "X-User", "partner"},
		"of an issuer": {core.UserFunc(func(r *core.Request) (core.User, error) {
			id, _ := r.Headers.Header("X-User", 0)
			return core.User{ID: id, Issuer: "https://login.example"}, nil
		}), "X-User", ""},
		"of an issuer, to a caller": {core.UserFunc(
			func(*core.Request) (core.User, error) { return core.User{ID: "ada lovelace", Issuer: "i d"}, nil }), "X-User", "a partner"},
	} {
		e := core.MustNew(core.Config{User: user.source})
		h := httpidem.New(e.MustGuard(core.Policy{}))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest("POST", "/orders", nil)
		r.Header.Set(user.header, "ada lovelace")
		if user.caller != "" {
			r = r.WithContext(core.WithCaller(r.Context(), user.caller))
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		ops, err := operations.Of(e, operations.Options{})
		require.NoError(t, err)
		hers := 1
		if name == "like a mark" {
			hers = 0
		}
		for id, n := range map[string]int{"ada lovelace": hers, "lovelac": 0, "lovelace": 0, "ada": 0, "1#ada lovelace": 1 - hers} {
			found := 0
			for _, err := range ops.List(t.Context(), operations.Query{User: id}) {
				require.NoError(t, err)
				found++
			}
			assert.Equal(t, n, found, "%s, %s", name, id)
		}
	}
}

// Signed events are found by sender and event, under the policy's name in place of a route, whatever that looks like.
func TestSignedEvents(t *testing.T) {
	e := core.MustNew(core.Config{})
	p := core.SignedEvent()
	p.Name, p.Abandoned = "DO stripe", core.Uncertain(nil)
	h := httpidem.New(e.MustGuard(p))(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { core.RunFrom(r.Context()).Abandon() }))
	deliver := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/hooks", nil).WithContext(core.WithCallerEvent(t.Context(), "acme", "evt 1")))
		return w
	}
	deliver()
	require.Equal(t, 503, deliver().Code)
	ops, err := operations.Of(e, operations.Options{})
	require.NoError(t, err)
	op, err := ops.LookupKey(t.Context(), "acme", "DO stripe", "evt 1")
	require.NoError(t, err)
	assert.Equal(t, []any{"DO stripe", "DO stripe", "caller#acme", false, false}, []any{op.Route, op.Policy, op.User, op.Task, op.Token})
	require.NoError(t, ops.Settle(t.Context(), op, &core.Response{Status: 402, Body: []byte("declined")}, time.Hour, by))
	w := deliver()
	assert.Equal(t, "200 ", fmt.Sprint(w.Code, " ", w.Body), "it has been dealt with: the sender is not to come again")
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 1500 * time.Microsecond: "1 ms", 59 * time.Second: "59 s", 5 * time.Minute: "5 min", 90 * time.Minute: "1 h 30 min",
		61 * time.Second: "1 min 1 s", 50 * time.Hour: "2 d 2 h", -time.Minute: "-1 min", -50 * time.Hour: "-2 d 2 h",
	} {
		assert.Equal(t, want, operations.Span(d))
	}
}

// unordered is a store whose pages have another order each time, and are as long as it likes.
type unordered struct {
	store.Store
	inspector *shuffled
}

func (u unordered) Capabilities() store.Capabilities {
	can := u.Store.Capabilities()
	u.inspector.Inspector = can.Inspect
	can.ListsOldest, can.Inspect = false, u.inspector
	return can
}

type shuffled struct {
	store.Inspector
	pages int // of the latest list
}

func (s *shuffled) List(ctx context.Context, q store.Query, cursor string) ([]store.Record, string, error) {
	if s.pages++; cursor == "" {
		s.pages = 1
	}
	q.Limit = 7
	page, next, err := s.Inspector.List(ctx, q, cursor)
	rand.Shuffle(len(page), func(i, j int) { page[i], page[j] = page[j], page[i] })
	return page, next, err
}

// TestListWithoutAnOrder: a list that goes on misses nothing, wherever it was broken off.
func TestListWithoutAnOrder(t *testing.T) {
	records, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	passes := &shuffled{}
	s := newService(t, core.Config{Store: unordered{records, passes}, Service: "shop"})
	for i := range 30 {
		s.charge("alice", fmt.Sprint(i))
	}
	found := map[string]bool{}
	for q, lists := (operations.Query{Limit: 2}), 0; lists == 0 || q.From != ""; lists++ {
		require.Less(t, lists, 20, "it goes on")
		from := q.From
		for op, err := range s.ops.List(t.Context(), q) {
			require.NoError(t, err)
			found[op.Digest], from = true, op.Next
		}
		require.Len(t, found, 2*(lists+1), "no page of the store is shown whole if less was asked for")
		q.From = from
	}
	assert.Len(t, found, 30)
	counts, err := s.ops.Count(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []operations.Count{{State: store.Abandoned, N: 30}, {State: store.Running},
		{State: store.Free}, {State: store.Done}}, counts)
	assert.Equal(t, 5, passes.pages, "one pass of seven at a time, whatever their states")
	for op, err := range s.ops.List(t.Context(), operations.Query{}) {
		require.NoError(t, err)
		again := 0
		for _, err := range s.ops.List(t.Context(), operations.Query{From: op.Next}) {
			require.NoError(t, err)
			again++
		}
		assert.Equal(t, 30, again)
		break
	}
}
