package core_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

func TestCallerFrom(t *testing.T) {
	_, ok := core.CallerFrom(t.Context())
	assert.False(t, ok)
	_, ok = core.CallerFrom(core.WithCaller(t.Context(), ""))
	assert.False(t, ok, "an empty id says nothing")
	outer := core.WithCaller(t.Context(), "outer")
	id, ok := core.CallerFrom(outer)
	assert.True(t, ok)
	assert.Equal(t, "outer", id)
	id, _ = core.CallerFrom(core.WithCaller(outer, "inner"))
	assert.Equal(t, "inner", id, "who is nearer to the handler has authenticated last")
}

// callerPart is userPart for a request of caller, with from as Config.User, or, if named, as
// Policy.User.
func callerPart(t *testing.T, from core.UserSource, named bool, caller string, c *call) string {
	t.Helper()
	config, policy := core.Config{User: from}, core.Policy{}
	if named {
		config, policy = core.Config{User: core.UserFromHeader("X-Other")}, core.Policy{User: from}
	}
	return userPartOf(core.MustNew(config).MustGuard(policy), core.Request{Headers: c, Caller: caller}, c)
}

// hashed is what stands in a key for text that must not, or is too long to.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func TestVerifiedCallersAreUsers(t *testing.T) {
	first, secret := core.FirstUser, core.UserFromSecretHeader("Authorization")
	byFunc := func(u core.User, err error) core.UserSource {
		return core.UserFunc(func(*core.Request) (core.User, error) { return u, err })
	}
	for name, tc := range map[string]struct {
		source       core.UserSource
		named        bool // in the policy
		caller       string
		header, want string
	}{
		"the caller alone":            {byUser, false, "demo", "", "caller#demo"},
		"and a user of his":           {byUser, false, "demo", "X-User: bob", "caller&#demo%20bob"},
		"both are escaped":            {byUser, false, "a b=", "X-User: c d=", "caller&#a+b%253D%20c%20d%3D"},
		"a user of an issuer":         {always(core.User{ID: "u", Issuer: "i"}), false, "demo", "", "caller&iss#demo%20i%20u"},
		"a credential stays a secret": {secret, false, "demo", "Authorization: Bearer x", "caller&##" + hashed("demo Bearer x")},
		"a long one is hashed":        {byUser, false, strings.Repeat("k", 128), "", "caller##" + hashed(strings.Repeat("k", 128))},
		"an address adds nothing":     {core.UserFromRemoteAddr(), false, "demo", "", "caller#demo"},
		"a real IP adds nothing":      {core.UserFromRealIP(), false, "demo", "X-Real-Ip: 10.1.2.3", "caller#demo"},
		"an address as a fallback":    {first(byUser, core.UserFromRemoteAddr()), false, "demo", "", "caller#demo"},
		"a fallback that counts": {first(byUser, secret), false, "demo", "Authorization: Bearer x",
			"caller&1##" + hashed("demo Bearer x")},
		"nested, an address": {first(byUser, first(core.UserFromRealIP(), byUser)), false, "demo",
			"X-Real-Ip: 10.1.2.3", "caller#demo"},
		"the caller himself adds nothing":     {core.UserFromCaller(), false, "demo", "", "caller#demo"},
		"nor as a fallback":                   {first(byUser, core.UserFromCaller()), false, "demo", "", "caller#demo"},
		"shared adds nothing":                 {core.SharedByAllCallers(), false, "demo", "", "caller#demo"},
		"nor if a function says so":           {byFunc(core.User{Shared: true}, nil), false, "demo", "", "caller#demo"},
		"a failure is not the caller":         {byFunc(core.User{}, errDown), false, "demo", "", "user_missing"},
		"nobody is verified":                  {byUser, false, "", "X-User: bob", "bob"},
		"nobody is verified, by address":      {core.UserFromRemoteAddr(), false, "", "", "192.0.2.1"},
		"nobody is verified, all are":         {core.UserFromCaller(), false, "", "X-User: bob", "user_missing"},
		"nobody is verified, with a fallback": {first(core.UserFromCaller(), byUser), false, "", "X-User: bob", "1#bob"},
		"named: the caller":                   {core.UserFromCaller(), true, "demo", "X-User: bob", "caller#demo"},
		"named: the caller first":             {first(core.UserFromCaller(), byUser), true, "demo", "X-User: bob", "0.caller#demo"},
		"named: a header":                     {byUser, true, "demo", "X-User: bob", "bob"},
		"named: an address":                   {core.UserFromRemoteAddr(), true, "demo", "", "192.0.2.1"},
		"named: an address as a fallback":     {first(byUser, core.UserFromRemoteAddr()), true, "demo", "", "1#192.0.2.1"},
		"named: shared":                       {core.SharedByAllCallers(), true, "demo", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := post("", nil)
			c.header.Del("X-User")
			c.remote = "192.0.2.1:4711"
			if field, value, ok := strings.Cut(tc.header, ": "); ok {
				c.header.Set(field, value)
			}
			assert.Equal(t, tc.want, callerPart(t, tc.source, tc.named, tc.caller, c))
		})
	}

	twice := post("", nil)
	twice.header["X-User"] = []string{"alice", "bob"}
	assert.Equal(t, "user_missing", callerPart(t, byUser, false, "demo", twice), "a user named twice is not left out")
	twice.header["X-Real-Ip"] = []string{"10.1.2.3", "10.1.2.4"}
	assert.Equal(t, "caller#demo", callerPart(t, core.UserFromRealIP(), false, "demo", twice), "an address is not looked at")
	_, _, err := core.MustNew(core.Config{User: core.UserFromCaller()}).MustGuard(core.Policy{}).Key(&core.Request{Headers: twice})
	assert.ErrorContains(t, err, "nothing has verified its caller")
}

// A caller chooses neither his key id's neighbours nor what other sources find: no two of these
// may share a key.
func TestCallersAreNeverOtherUsers(t *testing.T) {
	ids := []string{"a", "a b", "a+b", "a%20b", "caller#a", "caller&#a b", "caller", "iss#a", "0#a", "1#a", "&", "#", " ",
		strings.Repeat("k", 65)}
	second := core.FirstUser(core.UserFromHeader("X-None"), byUser)
	seen := map[string]string{}
	add := func(part, who string) {
		t.Helper()
		require.NotEqual(t, "user_missing", part, who)
		assert.Empty(t, seen[part], "%s and %s are both %s", who, seen[part], part)
		seen[part] = who
	}
	request := func(user string) *call {
		c := post("", nil)
		c.header["X-User"] = []string{user}
		return c
	}
	nobody := post("", nil)
	nobody.header.Del("X-User")
	for _, id := range ids {
		add(callerPart(t, byUser, false, "", request(id)), "user "+id)
		add(callerPart(t, core.FirstUser(core.UserFromHeader("X-None"), byUser), false, "", request(id)), "second user "+id)
		add(callerPart(t, byUser, false, id, nobody), "caller "+id)
		for _, user := range ids {
			add(callerPart(t, byUser, false, id, request(user)), "caller "+id+", user "+user)
			add(callerPart(t, second, false, id, request(user)), "caller "+id+", second user "+user)
		}
	}
}

// Where the key is optional, a request without one needs no user. One that has come past the
// verification is refused all the same.
func TestUserFromCallerNeedsACallerAlways(t *testing.T) {
	var ledger atomic.Int64
	g := core.MustNew(core.Config{}).MustGuard(core.Policy{Key: core.Header(core.Optional), User: core.UserFromCaller()})
	past, verified := post("{}", &ledger), post("{}", &ledger)
	require.NoError(t, g.Serve(t.Context(), past))
	require.Equal(t, "user_missing", past.code())
	require.NoError(t, g.Serve(core.WithCaller(t.Context(), "demo"), verified))
	require.EqualValues(t, 1, ledger.Load())
}

// All deliveries of an event are one operation, whatever key the client's header names.
func TestCallerEvent(t *testing.T) {
	var ledger atomic.Int64
	strict := core.Policy{Key: core.CallerEvent(), User: core.UserFromCaller()}
	lax := strict
	lax.Key = core.CallerEvent(core.IgnoreFingerprint())
	for _, c := range []struct {
		policy core.Policy
		other  string // what another body of the same event gets
	}{{strict, "key_reused"}, {lax, ""}} {
		ledger.Store(0)
		g := core.MustNew(core.Config{}).MustGuard(c.policy)
		ask := func(ctx context.Context, body, key string) *call {
			c := post(body, &ledger).withKey(key)
			require.NoError(t, g.Serve(ctx, c))
			return c
		}
		event := func(id string) context.Context { return core.WithCallerEvent(t.Context(), "stripe", id) }
		assert.False(t, ask(event("evt_1"), "{}", "a").replayed())
		assert.True(t, ask(event("evt_1"), "{}", "b").replayed())
		assert.False(t, ask(event("evt_2"), "{}", "a").replayed())
		assert.False(t, ask(core.WithCallerEvent(t.Context(), "other", "evt_1"), "{}", "a").replayed(), "another sender's event")
		again := ask(event("evt_1"), `{"pending_webhooks":1}`, "a")
		assert.Equal(t, c.other, again.code())
		assert.Equal(t, c.other == "", again.replayed())
		assert.Equal(t, "key_missing", ask(event(""), "{}", "a").code())
		assert.Equal(t, "key_missing", ask(core.WithCaller(event("evt_1"), "stripe"), "{}", "a").code(), "the inner caller has no event")
		assert.EqualValues(t, 3, ledger.Load())
	}
}

// Where the path is the route, whoever changes it would run an event again.
func TestCallerEventNeedsAPattern(t *testing.T) {
	g := core.MustNew(core.Config{}).MustGuard(core.Policy{Key: core.CallerEvent(), User: core.UserFromCaller()})
	r := core.Request{Method: "POST", Route: "/hooks", Headers: post("", nil), Caller: "github", CallerEvent: "evt_1"}
	_, _, err := g.Key(&r)
	require.NoError(t, err)
	r.Unmatched = true
	_, _, err = g.Key(&r)
	var refused *core.Refusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, codes.KeyInvalid, refused.Code)
}

// What a sender of webhooks gets when it sends an event again, whatever has become of the first delivery.
func TestSignedEvent(t *testing.T) {
	run := func(f func(*core.Run), status int) func(context.Context) adapter.Capture {
		return func(ctx context.Context) adapter.Capture { f(core.RunFrom(ctx)); return answer(status, "body") }
	}
	refusing := func(code codes.Code) func(context.Context) adapter.Capture { // what a Do within has returned
		return func(context.Context) adapter.Capture {
			return adapter.Capture{Ending: adapter.Unrendered, Err: core.NewRefusal(code, nil)}
		}
	}
	rendering := func(ctx context.Context) adapter.Capture {
		return adapter.Capture{Response: core.RefusalResponse(ctx, core.NewRefusal(codes.Duplicate, nil), nil)}
	}
	abandon := run((*core.Run).Abandon, 500)
	const runs, empty, stored, uncertain = "runs", "200 replayed", "201 replayed body", "503 uncertain 60"
	reject := core.Policy{Duplicate: core.Reject("")}
	for name, tc := range map[string]struct {
		change       core.Policy // what of it is set
		first        func(context.Context) adapter.Capture
		again, third string // what the next deliveries get; runs: the handler's 201
	}{
		"done":                         {core.Policy{}, answering(201, "body"), stored, stored},
		"done, and nothing is stored":  {reject, answering(201, "body"), empty, empty},
		"done, and too large":          {core.Policy{ResponseLimit: 3}, answering(201, "body"), empty, empty},
		"a 4xx":                        {core.Policy{}, answering(422, ""), runs, stored},
		"a 3xx":                        {core.Policy{}, answering(302, ""), runs, stored},
		"a 4xx that is kept":           {core.Policy{}, run((*core.Run).Keep, 422), empty, empty},
		"the same, and none is stored": {reject, run((*core.Run).Keep, 422), empty, empty},
		"a 4xx that is no failure":     {core.Policy{Failed: core.FailedByStatus}, answering(404, ""), empty, empty},
		"abandoned":                    {core.Policy{}, abandon, runs, stored},
		"uncertain":                    {core.Policy{Record: core.Record{Abandoned: core.Uncertain(nil)}}, abandon, uncertain, uncertain},
		"a token too old, further in":  {core.Policy{}, refusing(codes.TokenExpired), runs, stored},
		"a conflict, rendered":         {core.Policy{}, rendering, runs, stored},
		"a conflict further in":        {core.Policy{}, refusing(codes.InProgress), runs, stored},
		"uncertain further in":         {core.Policy{}, refusing(codes.Uncertain), runs, stored},
	} {
		var events []core.Event
		p := core.SignedEvent()
		p.Name, p.Duplicate, p.Record = "stripe", tc.change.Duplicate, tc.change.Record
		p.Failed, p.ResponseLimit = tc.change.Failed, tc.change.ResponseLimit
		g := core.MustNew(core.Config{Observe: func(_ context.Context, ev core.Event) { events = append(events, ev) }}).MustGuard(p)
		deliver := func(handler func(context.Context) adapter.Capture) string {
			c := post("{}", nil).doing(handler)
			require.NoError(t, g.Serve(core.WithCallerEvent(t.Context(), "stripe", "evt_1"), c))
			r := c.response
			switch last := events[len(events)-1]; {
			case c.code() != "":
				assert.Equal(t, r.Status, last.Status, "%s: the observer is told what the sender is", name)
				return fmt.Sprintf("%d %s %s", r.Status, c.code(), r.Get("Retry-After"))
			case c.replayed():
				return strings.TrimSpace(fmt.Sprintf("%d replayed %s", r.Status, r.Body))
			}
			return runs
		}
		assert.NotRegexp(t, "^4|^503 [a-z_]+ $", deliver(tc.first), "%s: a 4xx, or nothing says when to come again", name)
		assert.Equal(t, tc.again, deliver(answering(201, "body")), name)
		assert.Equal(t, tc.third, deliver(answering(201, "body")), name)
	}
}

// An event is one by whatever route it comes, for a guard's name and a sender.
func TestSignedEventKeys(t *testing.T) {
	e := core.MustNew(core.Config{})
	key := func(name string, r core.Request, options ...core.EventOption) (string, string) {
		p := core.SignedEvent(options...)
		p.Name, r.Headers = name, post("", nil)
		k, fingerprint, err := e.MustGuard(p).Key(&r)
		require.NoError(t, err)
		return k.Raw(), fingerprint
	}
	one := core.Request{Method: "POST", Route: "/hooks", Caller: "stripe", CallerEvent: "evt_1",
		ContentType: "application/json", Body: []byte(`{"n":1}`)}
	again := one
	again.Method, again.Route, again.Unmatched, again.Body = "PUT", "/elsewhere", true, []byte(`{"n":2}`)
	for _, r := range []core.Request{one, again} {
		got, fingerprint := key("pay ments", r)
		assert.Equal(t, "idem:U=caller#stripeM=pay%20mentsE=evt_1", got)
		assert.Empty(t, fingerprint)
		got, _ = key("other", r)
		assert.Contains(t, got, "M=otherE=evt_1", "two endpoints may share a secret")
	}
	_, a := key("n", one, core.CompareContent())
	_, b := key("n", again, core.CompareContent())
	assert.NotEqual(t, a, b)
	again.Body = []byte(`{"n":1,"pending_webhooks":1}`)
	_, b = key("n", again, core.CompareContent(core.Exclude("pending_webhooks")))
	assert.Equal(t, a, b)
	p := core.SignedEvent()
	p.Name, again.CallerEvent = "n", strings.Repeat("e", 256)
	_, _, err := e.MustGuard(p).Key(&again)
	assert.ErrorContains(t, err, "the key is longer than 255 bytes")
}

// Results, and what became of runs that never finished, are known for as long as senders deliver.
func TestSignedEventsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, month := range []time.Duration{0, 30 * 24 * time.Hour} {
			p := core.SignedEvent()
			p.Name, p.Retention, p.Abandoned = "stripe", month, core.Uncertain(nil)
			g := core.MustNew(core.Config{}).MustGuard(p)
			deliver := func(event string, abandon bool) int {
				c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
					if abandon {
						core.RunFrom(ctx).Abandon()
						return answer(500, "")
					}
					return answer(201, "")
				})
				require.NoError(t, g.Serve(core.WithCallerEvent(t.Context(), "stripe", event), c))
				return c.ran
			}
			deliver("done", false)
			deliver("uncertain", true)
			time.Sleep(cmp.Or(month, 96*time.Hour) - time.Hour)
			assert.Equal(t, []int{0, 0}, []int{deliver("done", false), deliver("uncertain", false)})
			time.Sleep(2 * time.Hour)
			assert.Equal(t, []int{1, 1}, []int{deliver("done", false), deliver("uncertain", false)})
		}
	})
}
