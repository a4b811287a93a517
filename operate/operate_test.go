package operate_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
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
	"github.com/idem-go/idem/operate"
)

// site is a service with its page under a prefix, and a browser.
type site struct {
	*testing.T
	engine  *core.Engine
	task    *core.Task
	events  []core.Event
	runs    int
	url     string
	actor   string // who is logged in
	forbids error  // of the audit
	status  int    // of the last page
	visited string
}

func newSite(t *testing.T, o operate.Options) *site {
	s := &site{T: t, actor: "ana"}
	s.engine = core.MustNew(core.Config{
		Observe: func(_ context.Context, ev core.Event) { s.events = append(s.events, ev) },
	})
	s.task = s.engine.MustTask(core.TaskPolicy{Name: "charge", Record: core.Record{Abandoned: core.Uncertain(nil)}})
	o.Audit = func(context.Context, operations.Action) error { return s.forbids }
	o.Authorize = func(r *http.Request) (operate.Actor, operate.Access, error) {
		name, _, _ := r.BasicAuth()
		switch name {
		case "ana":
			return "ana", operate.Change, nil
		case "bob":
			return "bob", operate.Read, nil
		case "eve":
			return "eve", operate.Change, errors.New("secret reason")
		}
		return "", operate.Change, nil
	}
	page, err := operate.New(s.engine, o)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/deep/admin/idempotency/", http.StripPrefix("/deep/admin", page))
	mux.Handle("/deep/admin/idempotency", http.StripPrefix("/deep/admin/idempotency", page))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL + "/deep/admin/idempotency/"
	return s
}

// do runs a charge, which does not know whether it has charged if unsure is set. It returns the digest of its key.
func (s *site) do(key string, unsure bool) (digest string) {
	_, err := core.Do(s.Context(), s.task, core.Call{Key: key, User: "alice"}, func(ctx context.Context) (string, error) {
		run := core.RunFrom(ctx)
		if s.runs++; unsure {
			run.Abandon()
		}
		digest = run.Key().String()
		return "charged <b>", nil
	})
	require.NoError(s, err)
	return digest
}

// visit follows a link, relative to the page, or sends a form.
func (s *site) visit(link string, form url.Values, header ...string) string {
	s.Helper()
	base, err := url.Parse(s.url)
	require.NoError(s, err)
	to, err := base.Parse(link)
	require.NoError(s, err)
	method := "GET"
	if form != nil {
		method = "POST"
	}
	r, err := http.NewRequestWithContext(s.Context(), method, to.String(), strings.NewReader(form.Encode()))
	require.NoError(s, err)
	r.SetBasicAuth(s.actor, "")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error { r.SetBasicAuth(s.actor, ""); return nil }}
	resp, err := client.Do(r)
	require.NoError(s, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	s.status, s.visited = resp.StatusCode, resp.Request.URL.RequestURI()
	assert.Contains(s, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
	assert.Equal(s, "no-store", resp.Header.Get("Cache-Control"), "users and keys in a cache")
	assert.NotRegexp(s, `(href|src|action)="(/|https?:)`, string(b), "a link that is not relative")
	return string(b)
}

var next = regexp.MustCompile(`<a href="(\?[^"]*)" rel="next">`)

var field = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// form fills in the form of an action on the page of an operation.
func (s *site) form(page, action string) url.Values {
	s.Helper()
	_, form, found := strings.Cut(page, `name="action" value="`+action+`"`)
	require.True(s, found, "there is no form to %s:\n%s", action, page)
	form, _, _ = strings.Cut(form, "</form>")
	values := url.Values{"action": {action}, "reason": {"the bank says so"}, "sure": {"yes"}}
	for _, f := range field.FindAllStringSubmatch(form, -1) {
		values.Set(f[1], f[2])
	}
	return values
}

func (s *site) operated() (actions []string) {
	for _, ev := range s.events {
		if ev.Kind == core.Operated {
			actions = append(actions, fmt.Sprintf("%s by %s: %v", ev.Action, ev.Actor, ev.Err))
		}
	}
	return actions
}

func TestPage(t *testing.T) {
	s := newSite(t, operate.Options{})
	digest := s.do("stuck", true)
	s.do("done", false)
	list := s.visit(strings.TrimSuffix(s.url, "/"), nil) // without the slash
	assert.Equal(t, "/deep/admin/idempotency/", s.visited)
	assert.Regexp(t, `(?s)1 abandoned</a>.*0 running</a>.*1 done</a>.*`+digest+`.*abandoned.*done`, list)
	page := s.visit("?find="+digest, nil)
	assert.Equal(t, "/deep/admin/idempotency/operation?digest="+digest, s.visited)
	assert.Contains(t, page, "Abandoned: a run began and never finished.")

	// Released, by a double click, once the audit lets it.
	release := s.form(page, "release")
	s.forbids = errors.New("not before eight")
	assert.Contains(t, s.visit("act", release), "not before eight")
	s.forbids = nil
	after := s.visit("act", release)
	assert.Equal(t, "/deep/admin/idempotency/operation?digest="+digest, s.visited)
	assert.Contains(t, after, "Free: the next request runs.")
	assert.Contains(t, after, "release by ana: the bank says so")
	s.visit("act", release)
	assert.Equal(t, 200, s.status)
	assert.Equal(t, []string{"release by ana: idem: the audit has forbidden it: not before eight", "release by ana: <nil>"}, s.operated())
	assert.Regexp(t, `(?s)0 abandoned</a>.*0 running</a>.*1 free</a>.*1 done</a>`, s.visit("./", nil), "without those of the page itself")
	assert.False(t,
		slices.ContainsFunc(s.events, func(ev core.Event) bool { return ev.Policy != "charge" && ev.Kind != core.StoreIsLocal }))
	// The page that was open all the time, when the next run is stuck, and when it is done.
	stale := s.form(page, "settle")
	stale.Set("body", `"late"`)
	stale.Set("retain", "1h")
	for _, unsure := range []bool{true, false} {
		s.do("stuck", unsure)
		assert.Contains(t, s.visit("act", stale), "another operator has changed it")
		assert.Equal(t, http.StatusConflict, s.status)
		if unsure {
			s.visit("act", s.form(s.visit("operation?digest="+digest, nil), "release"))
		}
	}
	assert.Equal(t, 4, s.runs)

	// A done one: its value is hidden until it is asked for.
	page = s.visit("operation?digest="+digest, nil)
	assert.NotContains(t, page, "charged")
	assert.Contains(t, s.visit("operation?digest="+digest+"&body", nil), "charged \\u003cb\\u003e")

	// One that runs.
	_, err := core.Do(t.Context(), s.task, core.Call{Key: "runs"}, func(ctx context.Context) (string, error) {
		forget := s.form(s.visit("operation?digest="+core.RunFrom(ctx).Key().String(), nil), "forget")
		assert.Contains(t, s.visit("act", forget), "The operation is running")
		forget.Set("running", "yes")
		s.visit("act", forget)
		return "", core.RunFrom(ctx).Renew(ctx)
	})
	assert.ErrorIs(t, err, store.ErrLost)

	digest = s.do("settled", true)
	settle := s.form(s.visit("operation?digest="+digest, nil), "settle")
	for name, bad := range map[string][2]string{"sure": {"", "tick the box"}, "reason": {" ", "needs an actor and a reason"},
		"retain": {"soon", "takes a duration"}, "action": {"dance", "nknown action"}} {
		broken := url.Values{}
		for k, v := range settle {
			broken[k] = v
		}
		broken.Set(name, bad[0])
		assert.Contains(t, s.visit("act", broken), bad[1])
		assert.Equal(t, http.StatusUnprocessableEntity, s.status)
	}
	settle.Set("body", `"by hand"`)
	s.visit("act", settle)
	r, err := core.Do(t.Context(), s.task, core.Call{Key: "settled", User: "alice"},
		func(context.Context) (string, error) { return "", nil })
	require.NoError(t, err)
	assert.Equal(t, "by hand", r.Value)
	s.visit("act", s.form(s.visit("operation?digest="+digest, nil), "forget"))
	assert.Equal(t, "/deep/admin/idempotency/", s.visited)
	gone := s.visit("operation?digest="+digest, nil)
	assert.Contains(t, gone, "There is no such operation.")
	assert.Contains(t, gone, "Search the logs for its digest.")
	assert.Equal(t, http.StatusNotFound, s.status)
}

func TestWhoMayDoWhat(t *testing.T) {
	s := newSite(t, operate.Options{})
	digest := s.do("stuck", true)
	release := s.form(s.visit("operation?digest="+digest, nil), "release")
	for _, c := range []struct {
		actor  string
		header []string
		status int
	}{
		{"ana", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"ana", []string{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}, 403},
		{"bob", nil, 403}, {"eve", nil, 403}, {"", nil, 401}, {"nobody", []string{"Idem-Operator", "ana"}, 401},
	} {
		s.actor = c.actor
		page := s.visit("act", release, c.header...)
		assert.Equal(t, c.status, s.status, c)
		assert.NotContains(t, page, "secret reason")
	}
	assert.Empty(t, s.operated())
	s.actor = "bob"
	page := s.visit("operation?digest="+digest, nil)
	assert.Contains(t, page, "Abandoned")
	assert.NotContains(t, page, "<form")
	s.visit("./http:evil.example", nil) // which would leave a page under https
	assert.Equal(t, "/deep/admin/idempotency/http:evil.example/", s.visited)
	s.actor = "ana"
	s.visit("act", nil)
	assert.Equal(t, http.StatusMethodNotAllowed, s.status)
	s.visit("operation", url.Values{})
	assert.Equal(t, http.StatusMethodNotAllowed, s.status)

	_, err := operate.New(s.engine, operate.Options{})
	assert.ErrorContains(t, err, "Authorize")
}

// TestBehindAProxy: where Host is not the browser's, an action is refused with what to set, and goes once that is set.
func TestBehindAProxy(t *testing.T) {
	proxied := []string{"Sec-Fetch-Site", "", "Origin", "https://ops.example"}
	for _, trusted := range [][]string{nil, {"https://ops.example"}} {
		s := newSite(t, operate.Options{TrustedOrigins: trusted})
		digest := s.do("stuck", true)
		release := s.form(s.visit("operation?digest="+digest, nil), "release")
		page := s.visit("act", release, proxied...)
		if trusted == nil {
			assert.Equal(t, http.StatusForbidden, s.status)
			assert.Contains(t, page, "<h1>Forbidden</h1>")
			assert.Contains(t, page, "TrustedOrigins")
			assert.Contains(t, page, "https://ops.example")
			assert.Empty(t, s.operated())
		} else {
			assert.Equal(t, []string{"release by ana: <nil>"}, s.operated())
			s.visit("act", release, "Sec-Fetch-Site", "", "Origin", "https://evil.example")
			assert.Equal(t, http.StatusForbidden, s.status)
		}
	}
	nobody := func(*http.Request) (operate.Actor, operate.Access, error) { return "", operate.None, nil }
	_, err := operate.New(core.MustNew(core.Config{}), operate.Options{TrustedOrigins: []string{"ops.example"}, Authorize: nobody})
	assert.ErrorContains(t, err, "operate: Options.TrustedOrigins: ")
}

// TestSearch: no address holds a user or a key, nor does the cursor of what follows.
func TestSearch(t *testing.T) {
	s := newSite(t, operate.Options{})
	for i := range 60 {
		s.do(fmt.Sprint("key-", i), false)
	}
	_, err := core.Do(t.Context(), s.task, core.Call{Key: "k", User: "bert"}, func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	assert.Contains(t, s.visit("./", nil), `<form class="search" method="post" action="./"`)
	first := s.visit("./", url.Values{"user": {"alice"}, "state": {"done"}, "route": {""}})
	assert.Equal(t, "/deep/admin/idempotency/", s.visited)
	assert.Equal(t, 50, strings.Count(first, `class="digest"`))
	more := html.UnescapeString(next.FindStringSubmatch(first)[1])
	cursor, err := url.ParseQuery(more[1:])
	require.NoError(t, err)
	raw, err := base64.RawURLEncoding.DecodeString(cursor.Get("from"))
	require.NoError(t, err)
	for _, private := range []string{"alice", "key-", "charge"} {
		assert.NotContains(t, more+string(raw), private)
	}
	second := s.visit(more, nil)
	assert.Equal(t, 10, strings.Count(second, `class="digest"`), "alice's, without bert's")
	assert.Contains(t, second, `name="user" value="alice"`)

	// A cursor of another process, of another search, or of nobody.
	other := newSite(t, operate.Options{})
	other.do("elsewhere", false)
	for _, unknown := range []string{more, strings.Replace(more, "state=done", "state=running", 1), "?from=x", "?from=MC4uZg"} {
		site := s
		if unknown == more {
			site = other
		}
		page := site.visit(unknown, nil)
		assert.Equal(t, http.StatusBadRequest, site.status, unknown)
		assert.Contains(t, page, "The list starts over")
		assert.Equal(t, !strings.Contains(unknown, "running"), strings.Contains(page, `class="digest"`), unknown)
	}
	assert.Contains(t, s.visit("?user=bert", nil), "logs keep addresses")
	s.visit("./", url.Values{"user": {"alice"}, "key": {"key-1"}})
	assert.Contains(t, s.visited, "operation?digest=")
	s.visit("./", url.Values{"user": {"alice"}}, "Sec-Fetch-Site", "cross-site")
	assert.Equal(t, http.StatusForbidden, s.status)
}

// broken is a store whose records can't be listed.
type broken struct{ store.Store }

func (b broken) Capabilities() store.Capabilities {
	can := b.Store.Capabilities()
	can.Inspect = brokenInspector{can.Inspect}
	return can
}

type brokenInspector struct{ store.Inspector }

func (brokenInspector) List(context.Context, store.Query, string) ([]store.Record, string, error) {
	return nil, "", errors.New("the store is away")
}

// TestStoreIsAway: what is not known is not said to be none.
func TestStoreIsAway(t *testing.T) {
	records, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	page, err := operate.New(core.MustNew(core.Config{Store: broken{records}}), operate.Options{
		Authorize: func(*http.Request) (operate.Actor, operate.Access, error) { return "ana", operate.Read, nil },
	})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("GET", "/x/", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), "The store is away.")
	assert.Contains(t, w.Body.String(), "? abandoned")
	assert.Contains(t, w.Body.String(), "Bring it back")
	for _, none := range []string{"Nothing needs you", "The store has no operations", "No operation matches"} {
		assert.NotContains(t, w.Body.String(), none)
	}
}

// TestWhatThePageShows: text from outside is text, numbers are whole, clocks may have been set back, and a format is used.
func TestWhatThePageShows(t *testing.T) {
	now := time.Now()
	records, err := memstore.New(memstore.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	now = now.Add(50 * time.Hour) // the store's clock is ahead
	engine := core.MustNew(core.Config{Store: records, Remark: func(context.Context) string { return "<script>\u202ealert(1)</script>" }})
	for i := range 60 {
		_, err = core.Do(t.Context(), engine.MustTask(core.TaskPolicy{Name: "n"}), core.Call{Key: fmt.Sprint(i)},
			func(context.Context) ([]byte, error) { return []byte{0xff}, nil })
		require.NoError(t, err)
	}
	page, err := operate.New(engine, operate.Options{
		Authorize: func(*http.Request) (operate.Actor, operate.Access, error) { return "ana", operate.Read, nil },
		Format: func(op operations.Operation, _ string, body []byte) string {
			return fmt.Sprintf("%s: %x", op.Policy, body)
		},
	})
	require.NoError(t, err)
	get := func(target string) string {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		return w.Body.String()
	}
	list := get("/x/?state=done")
	assert.Contains(t, list, "-2 d 1 h")
	assert.Contains(t, list, "&lt;script&gt;\ufffd")
	assert.NotContains(t, list, "<script")
	rows := regexp.MustCompile(`operation\?digest=([0-9a-f]+)`)
	more := next.FindStringSubmatch(list)
	require.NotNil(t, more)
	seen := append(rows.FindAllString(list, -1), rows.FindAllString(get("/x/"+strings.ReplaceAll(more[1], "&amp;", "&")), -1)...)
	assert.Len(t, seen, 60)
	assert.Contains(t, get("/x/"+rows.FindString(list)+"&body"), "n: 03ff")
	assert.Contains(t, get("/x/?older=yesterday"), "takes a duration such as")
	assert.Contains(t, get("/x/?find=zzz"), "is neither")
	missing := get("/x/?find=" + strings.Repeat("0", 16))
	assert.Contains(t, missing, "There is no such operation.")
	assert.NotRegexp(t, rows, missing, "others were not asked for")
	assert.NotContains(t, missing, `rel="next"`)
	assert.Contains(t, missing, "<details open><summary><h2>Search: find 0000000000000000</h2>")
	assert.Contains(t, list, "<details><summary><h2>Search: state done</h2>")
	assert.Contains(t, get("/x/style.css"), "color-scheme")

	key := []byte(strings.Repeat("0123456789", 4))
	sealing := core.MustNew(core.Config{Store: records, Seal: &core.Seal{DigestKey: key, Keys: []core.Secret{{Name: "a", Key: key[1:]}}}})
	var digest string
	_, err = core.Do(t.Context(), sealing.MustTask(core.TaskPolicy{Name: "n"}), core.Call{Key: "sealed"},
		func(ctx context.Context) (string, error) {
			digest = core.RunFrom(ctx).Key().String()
			return "", nil
		})
	require.NoError(t, err)
	sealed := get("/x/operation?digest=" + digest + "&body")
	assert.Contains(t, sealed, "there is no Config.Seal")
	assert.NotContains(t, sealed, "n: ")

	assert.Equal(t, "9,007,199,254,740,993", operate.Number(1<<53+1))
}

// records are a service's, as if it had made them, and its page.
type records struct {
	*testing.T
	store.Store
	engine *core.Engine
	page   *operate.Handler
	access operate.Access
	ahead  atomic.Int64 // of the store's clock
}

func newRecords(t *testing.T, change func(store.Store) store.Store) *records {
	r := &records{T: t, access: operate.Read}
	var err error
	r.Store, err = memstore.New(memstore.Config{Now: func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }})
	require.NoError(t, err)
	shown := r.Store
	if change != nil {
		shown = change(shown)
	}
	r.engine = core.MustNew(core.Config{Store: shown, Service: "shop", StoreTimeout: time.Second})
	r.page, err = operate.New(r.engine, operate.Options{
		Authorize: func(*http.Request) (operate.Actor, operate.Access, error) { return "ana", r.access, nil },
	})
	require.NoError(t, err)
	return r
}

func (r *records) get(target string) string {
	w := httptest.NewRecorder()
	r.page.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
	return w.Body.String()
}

const stored = "idem:shop:U=annM=DO%20chargeK="

// claim begins a run that took place some time ago, or takes it over.
func (r *records) claim(key string, ago time.Duration, about store.About) store.Owner {
	r.Helper()
	r.ahead.Store(-int64(ago))
	defer r.ahead.Store(0)
	claim := store.Claim{Owner: store.NewOwner(), Lease: time.Minute, Retention: 24*time.Hour - time.Minute, Takeover: true, About: about}
	g, err := r.Acquire(r.Context(), stored+key, claim)
	require.NoError(r, err)
	require.Equal(r, store.Acquired, g.State)
	return claim.Owner
}

func digest(key string) string {
	sum := sha256.Sum256([]byte(stored + key))
	return hex.EncodeToString(sum[:8])
}

// about describes a run as an engine does.
func about() store.About { return store.About{ID: store.NewID(), Creator: "host 7"} }

// onItsOwnClock runs a test whose clock stands still.
func onItsOwnClock(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// TestTimeLine: it has what the record says, and does not guess the rest.
func TestTimeLine(t *testing.T) {
	act := func(r *records, do func(*operations.Operations, operations.Operation, operations.By) error) {
		ops, err := operations.Of(r.engine, operations.Options{})
		require.NoError(r, err)
		op, err := ops.Lookup(r.Context(), digest("k"))
		require.NoError(r, err)
		require.NoError(r, do(ops, op, operations.By{Actor: "ana", Reason: "the bank says so"}))
	}
	for name, c := range map[string]struct {
		make         func(r *records)
		line         string
		has, hasNone []string
	}{
		"running": {func(r *records) { r.claim("k", 0, about()) },
			"Begun, running, Lease passes", []string{"claimed by host 7", "In 1 min", "in 1 min"}, []string{"Time not recorded"}},
		"its lease has passed": {func(r *records) { r.claim("k", 6*time.Hour, about()) },
			"Begun, Not finished, abandoned, Record is forgotten", []string{`<rect class="abandoned" width="25.00%"`,
				`x="25.00%" width="75.00%"`, "6 h ago", "In 18 h", "The run lost its claim"}, nil},
		"taken over": {func(r *records) {
			r.claim("k", time.Hour, about())
			require.NoError(r, r.Complete(r.Context(), stored+"k", r.claim("k", 0, store.About{}), []byte("1234"), time.Hour))
		}, "Begun, Attempt 2, Finished, done, Result is no longer kept",
			[]string{"The first run was claimed.", "claimed by a process that is not recorded", "4 bytes"}, []string{"host 7"}},
		"taken over, and unknown": {func(r *records) { r.claim("k", 2*time.Hour, about()); r.claim("k", time.Hour, about()) },
			"Begun, Attempt 2, Not finished, abandoned, Record is forgotten", []string{"A run lost its claim"}, []string{"The run lost"}},
		"released": {func(r *records) {
			r.claim("k", time.Hour, about())
			act(r, func(o *operations.Operations, op operations.Operation, by operations.By) error {
				return o.Release(r.Context(), op, by)
			})
		}, "Begun, Released by an operator, free, Record is forgotten", []string{"<p>release by ana: the bank says so</p>"}, nil},
		"free": {func(r *records) {
			r.claim("k", time.Hour, about())
			a := about()
			a.Remark = "released by nobody"
			require.NoError(r, r.Complete(r.Context(), stored+"k", r.claim("k", 0, a), nil, 0))
		}, "Begun, Attempt 2, No run holds the claim, free, Record is forgotten", nil, nil},
		"settled": {func(r *records) {
			r.claim("k", time.Hour, about())
			act(r, func(o *operations.Operations, op operations.Operation, by operations.By) error {
				return o.SettleTask(r.Context(), op, nil, time.Hour, by)
			})
		}, "Begun, Settled by an operator, done, Result is no longer kept", []string{"<p>settle by ana: the bank says so</p>"}, nil},
		"expired": {func(r *records) {
			owner := r.claim("k", time.Hour, about())
			r.ahead.Store(-int64(time.Hour))
			require.NoError(r, r.Capabilities().Outlive(r.Context(), stored+"k", owner, []byte("1234"), time.Minute, 3*time.Hour))
			r.ahead.Store(0)
		}, "Begun, Finished, done, Key is forgotten", []string{"It is no longer kept", "key ends in 2 h"}, []string{"4 bytes"}},
		"of a clock that was set back": {func(r *records) { r.claim("k", -time.Hour, about()) },
			"Begun, running, Lease passes", []string{`<rect class="running" width="0.00%"`}, nil},
		"without an id": {func(r *records) { r.claim("k", 0, store.About{}) },
			"Begun, running, Lease passes", []string{"Time not recorded"}, []string{"<svg", " ago"}},
	} {
		onItsOwnClock(t, name, func(t *testing.T) {
			r := newRecords(t, nil)
			c.make(r)
			page := r.get("/x/operation?digest=" + digest("k"))
			_, line, _ := strings.Cut(page, "<h2>Time line</h2>")
			line, _, _ = strings.Cut(line, "<h2>")
			var headings []string
			for _, h := range regexp.MustCompile(`<h3>(?:<span[^>]*>)?([^<]*)`).FindAllStringSubmatch(line, -1) {
				headings = append(headings, h[1])
			}
			assert.Equal(t, c.line, strings.Join(headings, ", "))
			for _, text := range c.has {
				assert.Contains(t, line, text)
			}
			for _, text := range c.hasNone {
				assert.NotContains(t, line, text)
			}
			assert.Regexp(t, `<h1>Operation `+digest("k")+` <span class="chip (\w+)">\w+</span></h1>`, page)
			assert.Contains(t, page, "to do:</strong>")
			assert.Contains(t, page, "You may only look.")
		})
	}
}

// needs is the part of the overview about what needs somebody.
func needs(page string) string {
	_, part, _ := strings.Cut(page, `<section class="needs">`)
	part, _, _ = strings.Cut(part, "</section>")
	return part
}

// unordered is a store like Redis, which lists in no order. It lists nothing of what it has to look for if it is large.
type unordered struct {
	store.Store
	large bool
}

func (u unordered) Capabilities() store.Capabilities {
	can := u.Store.Capabilities()
	can.ListsOldest, can.Inspect = false, largeInspector{can.Inspect, u.large}
	return can
}

type largeInspector struct {
	store.Inspector
	large bool
}

func (l largeInspector) List(ctx context.Context, q store.Query, cursor string) ([]store.Record, string, error) {
	if l.large && len(q.States) > 0 {
		<-ctx.Done()
		return nil, "", ctx.Err()
	}
	return l.Inspector.List(ctx, q, cursor)
}

// TestOverview: what needs somebody is first, with what to do, and what is not known is not said to be nothing.
func TestOverview(t *testing.T) {
	const calm, more = "Nothing needs you", "There may be more."
	for name, change := range map[string]func(store.Store) store.Store{
		"ordered": nil, "unordered": func(s store.Store) store.Store { return unordered{Store: s} },
	} {
		onItsOwnClock(t, name, func(t *testing.T) {
			r := newRecords(t, change)
			empty := r.get("/x/")
			assert.Contains(t, empty, "Send a request to a guarded route")
			assert.Contains(t, needs(empty), calm)
			assert.Equal(t, change == nil, strings.Contains(empty, `class="chip">0 abandoned</a>`))
			r.claim("young", 0, about())
			r.claim("unknown", 0, store.About{})
			done := r.claim("done", 0, about())
			require.NoError(t, r.Complete(t.Context(), stored+"done", done, nil, time.Hour))
			page := r.get("/x/")
			assert.Contains(t, needs(page), calm)
			assert.NotContains(t, page, "Send a request to a guarded route")
			assert.Contains(t, page, `href="operation?digest=`+digest("done"))
			assert.Contains(t, r.get("/x/operation?digest="+digest("done")+"&body"), "The body is empty.")

			require.NoError(t, r.Renew(t.Context(), stored+"old", r.claim("old", 16*time.Minute, about()), time.Minute))
			r.claim("stuck", 14*time.Minute, about())
			page = needs(r.get("/x/"))
			assert.Regexp(t, `(?s)Find out, then open each.*chip abandoned.*`+digest("stuck")+`.*begun 14 min ago.*`+
				`over 15 min.*chip running.*`+digest("old")+`.*begun 16 min ago, claimed by host 7`, page)
			assert.Equal(t, 2, strings.Count(page, "<li>"), "and none that runs since a moment or is done:\n%s", page)
			assert.NotContains(t, page, calm)
			assert.NotContains(t, page, more)
			for i := range 9 {
				r.claim(fmt.Sprint("stuck-", i), time.Hour, about())
			}
			page = needs(r.get("/x/"))
			assert.Equal(t, 10, strings.Count(page, "<li>"))
			assert.Contains(t, page, more)

			found := r.get("/x/?policy=nobody")
			assert.Contains(t, found, "No operation matches.")
			assert.Empty(t, needs(found))
			assert.Contains(t, found, `<a href="./">All operations</a>`)
			chips := regexp.MustCompile(`class="chip[a-z ]*">(.*?)</a>`).FindAllStringSubmatch(found, -1)
			require.Len(t, chips, 4)
			if change == nil {
				assert.Equal(t, "10 abandoned", chips[0][1])
			} else {
				assert.Equal(t, "abandoned", chips[0][1])
			}
		})
	}
	onItsOwnClock(t, "large", func(t *testing.T) {
		r := newRecords(t, func(s store.Store) store.Store { return unordered{s, true} })
		r.claim("stuck", time.Hour, about())
		page := r.get("/x/")
		assert.Contains(t, needs(page), more)
		assert.NotContains(t, page, calm)
		assert.Contains(t, page, digest("stuck"), "in the list")
		searched := time.Now()
		assert.Contains(t, r.get("/x/?route=DO+charge"), digest("stuck"))
		assert.Equal(t, searched, time.Now(), "by the bubble's clock: a search does not look for what needs somebody")
	})
}

// full is a store that takes no results.
type full struct{ store.Store }

func (full) Complete(context.Context, string, store.Owner, []byte, time.Duration) error {
	return errors.New("the store is away")
}

// TestUnsettled: a result that only this process has needs somebody before anything else does.
func TestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecords(t, func(s store.Store) store.Store { return full{s} })
		_, err := core.Do(t.Context(), r.engine.MustTask(core.TaskPolicy{Name: "charge"}), core.Call{Key: "late"},
			func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		r.claim("stuck", time.Hour, about())
		r.claim("runs", 0, about())
		for target, shown := range map[string]bool{"": true, "?state=done": true, "operation?digest=" + digest("stuck"): true,
			"operation?digest=" + digest("runs"): false} {
			page := r.get("/x/" + target)
			assert.Equal(t, shown, strings.Contains(page, "Unsettled runs in this process: 1"), target)
			assert.Equal(t, shown, strings.Contains(page, "do not restart this process"), target)
			assert.NotContains(t, page, "no run of this process is unsettled")
		}
		assert.Contains(t, r.get("/x/operation?digest="+digest("stuck")), "wait until no run is unsettled. Then find out")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Error(t, r.engine.Drain(ctx))
		assert.NotContains(t, r.get("/x/operation?digest="+digest("stuck")), "nsettled")
	})
}

// TestLongValues: they are cut, with the whole at hand.
func TestLongValues(t *testing.T) {
	r := newRecords(t, nil)
	long := strings.Repeat("<long>", 40)
	a := about()
	a.Remark = long
	r.claim("k", 0, a)
	r.claim(strings.Repeat("x", 200), 0, about())
	whole := regexp.MustCompile(`<details class="long"><summary title="([^"]*)">([^<]*)</summary><span class="whole">([^<]*)</span>`)
	for target, want := range map[string]string{"": long, "operation?digest=" + digest("k"): long,
		"operation?digest=" + digest(strings.Repeat("x", 200)): stored + strings.Repeat("x", 200)} {
		found := whole.FindAllStringSubmatch(r.get("/x/"+target), -1)
		require.Len(t, found, 1, target)
		for _, text := range found[0][1:] {
			assert.Equal(t, want, html.UnescapeString(text))
		}
	}
}

// TestToken: the page of a token says why it has no form to forget it.
func TestToken(t *testing.T) {
	r := newRecords(t, nil)
	r.access = operate.Change
	claim := store.Claim{Owner: store.NewOwner(), Lease: time.Minute, About: about()}
	_, err := r.Acquire(t.Context(), "idem:shop:U=annM=checkoutT=x", claim)
	require.NoError(t, err)
	page := r.get("/x/operation?digest=" + regexp.MustCompile(`operation\?digest=(\w+)`).FindStringSubmatch(r.get("/x/"))[1])
	assert.NotContains(t, page, "<form")
	assert.Contains(t, page, "The record of a token cannot be forgotten")
}
