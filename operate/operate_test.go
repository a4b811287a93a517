package operate_test

import (
	"context"
	"encoding/base64"
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
	"testing"
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
	assert.Contains(t, s.visit("operation?digest="+digest, nil), "There is no such operation.")
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
	assert.NotContains(t, w.Body.String(), "There are none")
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
