package examples_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

const (
	aBrowserAccepts = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	formType        = "application/x-www-form-urlencoded"
)

// get asks for a page, as a browser does, or with other fields.
func (c *client) get(path string, fields ...string) answer {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodGet, c.process.URL+path, nil)
	require.NoError(c.t, err)
	req.Header.Set("Accept", aBrowserAccepts)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	a := c.do(req)
	require.NoError(c.t, a.err)
	return a
}

// visitor is a person with a browser, who is not logged in.
type visitor struct {
	*client
	session string
}

// visit asks for the form, and returns a visitor and the form's token.
func visit(c *client) (visitor, string) {
	c.t.Helper()
	page := c.get("/checkout")
	require.Equal(c.t, 200, page.status)
	cookie, err := http.ParseSetCookie(page.header.Get("Set-Cookie"))
	require.NoError(c.t, err)
	require.True(c.t, cookie.HttpOnly)
	require.Equal(c.t, http.SameSiteLaxMode, cookie.SameSite)
	require.Equal(c.t, "private, no-cache", page.header.Get("Cache-Control"))
	require.NotContains(c.t, page.header.Get("Content-Security-Policy"), "unsafe")
	v := visitor{c, cookie.Name + "=" + cookie.Value}
	require.Empty(c.t, c.get("/checkout", "Cookie", v.session).header.Values("Set-Cookie"), "one session is enough")
	return v, hiddenToken(c, page)
}

var tokenInput = regexp.MustCompile(`name="idempotency_token" value="([A-Za-z0-9_.-]+)"`)

func hiddenToken(c *client, page answer) string {
	c.t.Helper()
	found := tokenInput.FindSubmatch(page.body)
	require.NotNil(c.t, found, "%s", page.body)
	return string(found[1])
}

// saw writes down and checks the summary of an answer, whose request holds what is not the same for every program.
func (c *client) saw(summary, what string, a answer) answer {
	c.t.Helper()
	require.NoError(c.t, a.err)
	got := a.summary()
	if code := a.header.Get("Idempotency-Refused"); !strings.HasSuffix(got, code) {
		got += " page " + code // for people
	}
	c.transcript = append(c.transcript, strings.ReplaceAll(what, c.process.URL, "here")+": "+got)
	require.Equal(c.t, summary, got, "%s\n%s", what, a.body)
	return a
}

// submit sends the form, filled in, as a browser does.
func (v visitor) submit(want, token, name, tins string, fields ...string) answer {
	v.t.Helper()
	a := v.post(token, name, tins, fields...)
	v.filledIn(want, fmt.Sprintf("/checkout %s %s %q", name, tins, fields), name, tins, a)
	return a
}

func (v visitor) post(token, name, tins string, fields ...string) answer {
	form := url.Values{"idempotency_token": {token}, "name": {name}, "tea": {"Sencha"}, "tins": {tins}, "card": {""}}
	return v.send("/checkout", form.Encode(), append([]string{"X-User", "", "Cookie", v.session,
		"Accept", aBrowserAccepts, "Content-Type", formType}, fields...)...)
}

// filledIn checks the answer to a form. If it has one, that is filled in as the other was.
func (v visitor) filledIn(want, what, name, tins string, a answer) {
	v.t.Helper()
	v.saw(want, what, a)
	if strings.Contains(string(a.body), "<form") {
		require.Contains(v.t, string(a.body), `name="name" value="`+name+`"`, "what was typed is kept")
		require.Contains(v.t, string(a.body), `name="tins" value="`+tins+`"`)
		require.Contains(v.t, string(a.body), `<option selected>Sencha`)
	}
}

func tokensOfPrograms(c *client) {
	token := func(user string) string {
		a := c.get("/tokens", "X-User", user)
		require.Equal(c.t, 200, a.status)
		require.Equal(c.t, "no-store", a.header.Get("Cache-Control"))
		return a.member("token")
	}
	register := func(want, user, token, name string, fields ...string) answer {
		a := c.send("/registrations", `{"name":"`+name+`"}`, append([]string{"X-User", user, "X-Idempotency-Token", token}, fields...)...)
		return c.saw(want, fmt.Sprintf("/registrations %s %s %q", user, name, fields), a)
	}
	anns, bobs := token("ann"), token("bob")
	first := register("201", "ann", anns, "Ann")
	again := register("201 replayed", "ann", anns, "Ann")
	require.Equal(c.t, first.body, again.body)
	register("422 key_reused", "ann", anns, "Anna")
	register("403 token_invalid", "ann", bobs, "Ann")
	register("400 token_missing", "ann", "", "Ann")
	c.ran(1, "POST /registrations")

	register("503", "bob", bobs, "Bob", "X-Demo-Error", "503") // gives the token back
	register("201", "bob", bobs, "Bob")
	c.ran(2, "POST /registrations")
}

func forms(c *client) {
	v, token := visit(c)
	// What is wrong is said beside its field, and the token is still good.
	a := v.submit("422", token, "", "0")
	require.Contains(c.t, string(a.body), `<input id="tins" name="tins" value="0" aria-describedby="tins-error" aria-invalid="true"`)
	require.Contains(c.t, string(a.body), `id="tins-error"`)
	require.Equal(c.t, token, hiddenToken(c, a))
	v.submit("402", token, "Ann", "1", "X-Demo-Status", "402")
	v.submit("503", token, "Ann", "1", "X-Demo-Error", "503")
	v.submit("500", token, "Ann", "1", "X-Demo-Panic", "1")

	first := v.submit("303", token, "Ann", "1")
	again := v.submit("303 replayed", token, "Ann", "1")
	receipt := first.header.Get("Location")
	require.Equal(c.t, receipt, again.header.Get("Location"))
	c.ran(5, "POST /checkout")

	changed := v.submit("422 page key_reused", token, "Ann", "2")
	require.Contains(c.t, string(changed.body), `href="`+receipt+`"`)

	page := c.get(receipt, "Cookie", v.session)
	require.Contains(c.t, string(page.body), `<strong id="submits">7</strong>`)
	require.Contains(c.t, string(page.body), `<strong id="orders">1</strong>`)
	other, othersToken := visit(c)
	c.saw("404", "another visitor's receipt", c.get(receipt, "Cookie", other.session))
	c.saw("404", "a user's receipt", c.get(receipt, "X-User", "ann"))

	// Another's token, or none: nothing is done, and the page brings one that works.
	a = v.submit("403 page token_invalid", othersToken, "Ann", "1")
	require.Contains(c.t, string(a.body), "cookies")
	v.submit("303", hiddenToken(c, a), "Ann", "1")
	a = v.submit("400 page token_missing", "", "Ann", "3")
	v.submit("303", hiddenToken(c, a), "Ann", "3")
	c.ran(2, "POST /checkout")

	// Who comes without a cookie gets a new session, and a token for that.
	a = v.submit("403 page token_invalid", token, "Ann", "1", "Cookie", "")
	cookie, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	require.NoError(c.t, err)
	visitor{c, cookie.Name + "=" + cookie.Value}.submit("303", hiddenToken(c, a), "Ann", "1")
	c.ran(1, "POST /checkout")

	// A program is told in its own way.
	v.submit("403 token_invalid", token+"x", "Ann", "1", "Accept", "*/*")
}

// A page of somebody else's can have a browser send anything, a form with a token too. It gets nowhere.
func crossOrigin(c *client) {
	v, token := visit(c)
	foreign := [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://elsewhere.example"}, {"Origin", "null"}, // of browsers that do not send Sec-Fetch-Site
	}
	for _, fields := range foreign {
		a := v.submit("403", token, "Ann", "1", fields...)
		require.Contains(c.t, string(a.body), "not the shop", "a page for a person")
		c.expect("403", "/orders", `{"sku":"cross-origin"}`, fields...)
	}
	c.ran(0, "POST /checkout")
	c.ran(0, "POST /orders")

	v.submit("303", token, "Ann", "1", "Sec-Fetch-Site", "same-origin", "Origin", c.process.URL)
	v.submit("303 replayed", token, "Ann", "1", "Origin", c.process.URL)
	c.ran(1, "POST /checkout")
}

func assets(c *client) {
	for _, path := range []string{"/", "/nowhere", "/receipts"} {
		page := c.get(path)
		require.Equal(c.t, 404, page.status)
		require.Equal(c.t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
		require.Regexp(c.t, `<html lang="en">[^§]*<title>404 Not Found`, string(page.body))
	}
	require.NotEmpty(c.t, c.get("/nowhere", "Accept", "*/*").member("message"))
	for path, contentType := range map[string]string{
		"/style.css": "text/css; charset=utf-8", "/idem.js": "text/javascript; charset=utf-8",
		"/try": "text/html; charset=utf-8", "/try.js": "text/javascript; charset=utf-8",
	} {
		a := c.get(path)
		require.Equal(c.t, 200, a.status)
		require.Equal(c.t, contentType, a.header.Get("Content-Type"))
		require.Equal(c.t, "nosniff", a.header.Get("X-Content-Type-Options"))
		require.NotEmpty(c.t, a.body)
	}
}

// The page /try has two processes: when one has died, the other one answers.
func trial(c *client) {
	pay := func(want, process, key string, fields ...string) {
		c.expect(want, "/try/pay", `{"amount":500}`, append(fields, "X-Try-Trial", "0123456789abcdef0123456789abcdef",
			"X-Try-Process", process, "X-Try-Customer", "Ann", "X-Try-Request", "1", "Idempotency-Key", key)...)
	}
	pay("201", "A", "k-1")
	pay("201 replayed", "B", "k-1")
	pay("502", "A", "k-2", "X-Try-Die", "1")
	pay("409 in_progress", "B", "k-2")
	pay("502", "A", "k-1")
	log := c.get("/try/log", "X-Try-Trial", "0123456789abcdef0123456789abcdef")
	require.JSONEq(c.t, `{"runs":2, "charges":2, "requests":{"1":{"event":"refused", "waited":2000, "takeover":false}}}`,
		regexp.MustCompile(`"waited":[23]\d\d\d`).ReplaceAllString(string(log.body), `"waited":2000`))
}

// Somebody gets twenty tokens at once, and then one each three seconds; on Redis, the next twenty when the minute is over.
// (So on a slow machine one more may be had now and then.)
func tokensAreRationed(c *client) {
	served := 0
	a := c.get("/tokens", "X-User", "greedy")
	for ; a.status == 200 && served < 100; served++ {
		a = c.get("/tokens", "X-User", "greedy")
	}
	require.Equal(c.t, 429, a.status)
	require.Equal(c.t, "rate_limited", a.header.Get("Idempotency-Refused"))
	require.GreaterOrEqual(c.t, served, 20)
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(c.t, err)
	longest := 3
	if strings.HasSuffix(c.t.Name(), "_on_redis") {
		longest = 60
	}
	require.True(c.t, 0 < seconds && seconds <= longest, seconds)
	require.Equal(c.t, 200, c.get("/tokens", "X-User", "modest").status)
	require.Equal(c.t, 200, c.get("/checkout", "X-User", "greedy").status, "a form brings its own")
}
