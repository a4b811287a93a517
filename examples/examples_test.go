package examples_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

// TestPrograms builds and starts the programs.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	dir := program.Build(t, ".", append(program.Names, "signclient")...)
	t.Run("wrong options", func(t *testing.T) { wrongOptionsEndTheProgramWithCode2(t, dir) })
	theShopIsTheSame(t, dir)
	t.Run("signclient", func(t *testing.T) { signclientIsContent(t, dir) })
	t.Run("results outlive the program", func(t *testing.T) { resultsOutliveTheProgram(t, dir) })
	t.Run("tokens of two processes", func(t *testing.T) { tokensAreRationedOverTwoProcesses(t, dir) })
	t.Run("ten thousand duplicates over two processes", func(t *testing.T) { tenThousandDuplicatesOverTwoProcesses(t, dir) })
}

// theShopIsTheSame has each program go through the same script, and compares what the client
// has seen: on every framework, and on every store.
func theShopIsTheSame(t *testing.T, dir string) {
	transcripts := map[string][]string{}
	var mu sync.Mutex
	t.Run("script", func(t *testing.T) {
		add := func(name, on string, open func(*testing.T) string) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				seen := play(t, dir, on, "-store", open(t), "-admin", "ana:secret", "-metrics", "127.0.0.1:0")
				mu.Lock()
				defer mu.Unlock()
				transcripts[name] = seen
			})
		}
		for _, name := range program.Names {
			add(name, name, func(*testing.T) string { return "memory" })
		}
		for store, name := range map[string]string{"redis": "gin", "postgres": "echo", "mysql": "fiber", "sqlite": "nethttp"} {
			add(name+" on "+store, name, stores[store])
		}
	})
	for name, seen := range transcripts {
		assert.Equal(t, transcripts[program.Names[0]], seen, "%s answers unlike %s", name, program.Names[0])
	}
}

// play goes through the script with the program of that name, and returns what the client has seen.
func play(t *testing.T, dir, name string, flags ...string) (transcript []string) {
	c := newClient(t, program.Start(t, filepath.Join(dir, name), flags...))
	for _, scene := range script {
		scene(c)
	}
	return c.transcript
}

var script = []func(*client){
	everyRouteIsListed, equalOrdersAtOnce, replays, pathParametersCount, usersAreToldApart, clientKeys,
	multipartForms, frameworkErrors, failures, uncertainCharges, theOperatorReleases, panics, largeResponses, secondLikes, coupons,
	webhooks, tokensOfPrograms, forms, crossOrigin, assets, trial, tokensAreRationed, duplicatesOfRunningHandlers, theClientLeaves,
	handlersThatGiveUp, malformedDemoFields, theMetricsAgree, theProgramEnds,
}

// slow is how long a handler runs that a duplicate has to meet, or a client to leave, on a machine that is busy.
// A duplicate of a transfer waits longer.
const slow = "4s"

func everyRouteIsListed(c *client) {
	require.Equal(c.t, map[string]int{
		"POST /orders": 0, "POST /orders/:id/pay": 0, "POST /payments": 0, "POST /transfers": 0, "POST /charges": 0,
		"POST /likes": 0, "POST /coupons": 0, "POST /avatars": 0, "POST /webhooks": 0,
		"POST /registrations": 0, "POST /checkout": 0,
	}, c.executions())
}

func equalOrdersAtOnce(c *client) {
	const n = 5
	answers := make(chan answer, n)
	for range n {
		go func() { answers <- c.send("/orders", `{"sku":"once"}`, "X-Demo-Sleep", "50ms") }()
	}
	ids := map[string]bool{}
	for range n {
		a := <-answers
		require.NoError(c.t, a.err)
		if a.status == 201 {
			ids[a.member("order_id")] = true
		} else {
			require.Equal(c.t, "409 in_progress", a.summary())
			require.NotEmpty(c.t, a.header.Get("Retry-After"))
		}
	}
	require.Len(c.t, ids, 1)
	again := c.expect("201 replayed", "/orders", `{"sku":"once"}`)
	require.True(c.t, ids[again.member("order_id")])
	c.ran(1, "POST /orders")
}

func replays(c *client) {
	first := c.expect("201", "/orders?a=1&b=2", `{"sku":"tea","qty":1}`)
	require.Equal(c.t, "/orders/"+first.member("order_id"), first.header.Get("Location"))

	second := c.expect("201 replayed", "/orders?b=2&a=1", ` { "qty":1, "sku":"tea", "timestamp": 1700000000 } `)
	require.Equal(c.t, string(first.body), string(second.body))
	for _, name := range []string{"Location", "Content-Type"} {
		require.Equal(c.t, first.header.Values(name), second.header.Values(name))
	}
	c.ran(1, "POST /orders")

	c.expect("201", "/orders?a=1&b=2", `{"sku":"tea","qty":2}`)
	c.expect("201", "/orders", "no JSON at all")
	c.expect("201", "/orders", "")
	c.ran(3, "POST /orders")
}

func pathParametersCount(c *client) {
	first := c.expect("200", "/orders/1/pay", `{}`)
	second := c.expect("200", "/orders/2/pay", `{}`)
	require.NotEqual(c.t, first.member("payment_id"), second.member("payment_id"))
	again := c.expect("200 replayed", "/orders/1/pay", `{}`)
	require.Equal(c.t, first.body, again.body)
	require.Equal(c.t, "1", again.member("order_id"))
	c.ran(2, "POST /orders/:id/pay")
}

func usersAreToldApart(c *client) {
	const body = `{"sku":"for each"}`
	ann := c.expect("201", "/orders", body)
	bob := c.expect("201", "/orders", body, "X-User", "bob")
	guest := c.expect("201", "/orders", body, "X-User", "")
	again := c.expect("201 replayed", "/orders", body, "X-User", "")
	require.Equal(c.t, guest.body, again.body)
	require.NotEqual(c.t, ann.member("order_id"), bob.member("order_id"))
	// The guest's address, sent as a name, is not the guest.
	c.expect("201", "/orders", body, "X-User", "127.0.0.1")
	c.ran(4, "POST /orders")
}

func clientKeys(c *client) {
	c.expect("400 key_missing", "/payments", `{"amount":5}`)
	c.expect("400 key_invalid", "/payments", `{"amount":5}`, "Idempotency-Key", `"a","b"`)
	c.expect("400 key_missing", "/transfers", `{"amount":5}`)

	first := c.expect("201", "/payments", `{"amount":5}`, "Idempotency-Key", `"k-1"`)
	again := c.expect("201 replayed", "/payments", `{"amount":5}`, "Idempotency-Key", `k-1`)
	require.Equal(c.t, first.body, again.body)
	c.expect("422 key_reused", "/payments", `{"amount":6}`, "Idempotency-Key", `"k-1"`)
	c.expect("201 replayed", "/payments", `{"amount":5}`, "Idempotency-Key", `"k-1"`)
	c.expect("201", "/payments", `{"amount":5}`, "Idempotency-Key", `"k-2"`)
	c.ran(2, "POST /payments")

	// One key on two routes is two operations.
	c.expect("201", "/transfers", `{"amount":5}`, "Idempotency-Key", `"k-1"`)
	c.ran(1, "POST /transfers")
}

func multipartForms(c *client) {
	send := func(want, boundary, picture string) answer {
		contentType, body := form(c.t, boundary, picture)
		return c.expect(want, "/avatars", body, "Content-Type", contentType)
	}
	first := send("201", "one", "\x89PNG 1")
	again := send("201 replayed", "another", "\x89PNG 1")
	require.Equal(c.t, first.body, again.body)
	other := send("201", "one", "\x89PNG 2")
	require.NotEqual(c.t, first.member("sha256"), other.member("sha256"))
	c.ran(2, "POST /avatars")
}

func frameworkErrors(c *client) {
	const body = `{"sku":"refused by the handler"}`
	first := c.expect("422", "/payments", body, "Idempotency-Key", "wrong", "X-Demo-Error", "422")
	require.Contains(c.t, string(first.body), "X-Demo-Error")
	again := c.expect("422 replayed", "/payments", body, "Idempotency-Key", "wrong", "X-Demo-Error", "422")
	require.Equal(c.t, string(first.body), string(again.body))
	require.Equal(c.t, first.header.Values("Content-Type"), again.header.Values("Content-Type"))
	c.ran(1, "POST /payments")

	// Who cannot choose another key may try again.
	c.expect("402", "/orders", body, "X-Demo-Error", "402")
	c.expect("201", "/orders", body)
	c.ran(2, "POST /orders")

	c.expect("503", "/orders", `{"sku":"later"}`, "X-Demo-Error", "503")
	c.expect("201", "/orders", `{"sku":"later"}`)
	c.ran(2, "POST /orders")
}

func failures(c *client) {
	for _, status := range []string{"503", "500", "429", "425", "408", "499", "400", "409", "412"} {
		c.expect(status, "/orders", `{"sku":"failed"}`, "X-Demo-Status", status)
	}
	c.expect("201", "/orders", `{"sku":"failed"}`)
	c.expect("201 replayed", "/orders", `{"sku":"failed"}`, "X-Demo-Status", "503")
	c.ran(10, "POST /orders")

	c.expect("409", "/payments", `{}`, "Idempotency-Key", "sold-out", "X-Demo-Status", "409")
	c.expect("409 replayed", "/payments", `{}`, "Idempotency-Key", "sold-out")
	c.ran(1, "POST /payments")
	c.expect("204", "/orders", `{"sku":"nothing to say"}`, "X-Demo-Status", "204")
	c.expect("204 replayed", "/orders", `{"sku":"nothing to say"}`)
	c.ran(1, "POST /orders")
}

// What has failed at the bank may have been done all the same: nobody runs it again.
func uncertainCharges(c *client) {
	c.expect("201", "/charges", `{"amount":5}`, "Idempotency-Key", "charged")
	c.expect("201 replayed", "/charges", `{"amount":5}`, "Idempotency-Key", "charged")
	c.expect("502", "/charges", `{"amount":5}`, "Idempotency-Key", "lost", "X-Demo-Error", "502")
	c.expect("409 uncertain", "/charges", `{"amount":5}`, "Idempotency-Key", "lost")
	c.expect("500", "/charges", `{"amount":5}`, "Idempotency-Key", "burst", "X-Demo-Panic", "1")
	c.expect("409 uncertain", "/charges", `{"amount":5}`, "Idempotency-Key", "burst")
	c.expect("422 key_reused", "/charges", `{"amount":6}`, "Idempotency-Key", "burst")
	c.expect("402", "/charges", `{"amount":5}`, "Idempotency-Key", "broke", "X-Demo-Status", "402")
	c.expect("402 replayed", "/charges", `{"amount":5}`, "Idempotency-Key", "broke")
	c.ran(4, "POST /charges")
}

// theOperatorReleases a charge that is uncertain, so that it runs again.
func theOperatorReleases(c *client) {
	page := func(path string, login string) answer {
		req, err := http.NewRequest(http.MethodGet, c.process.URL+"/admin/idempotency/"+path, nil)
		require.NoError(c.t, err)
		req.Header.Set("Authorization", login)
		return c.do(req)
	}
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte("ana:secret"))
	require.Equal(c.t, 401, page("", "").status)
	require.Equal(c.t, 401, page("", "Basic "+base64.StdEncoding.EncodeToString([]byte("ana:wrong"))).status)
	require.Contains(c.t, page("style.css", login).header.Get("Content-Type"), "text/css")
	found := c.send("/admin/idempotency/", "user=ann&route=POST+/charges&key=lost",
		"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin", "Authorization", login)
	require.Equal(c.t, 303, found.status, "%s", found.body)
	seen := page(found.header.Get("Location"), login)
	require.Contains(c.t, string(seen.body), "Abandoned", "%d", seen.status)
	form := url.Values{"action": {"release"}, "reason": {"the bank knows nothing of it"}, "sure": {"yes"}}
	for _, f := range regexp.MustCompile(`name="(digest|id|attempt|state)" value="(\w+)"`).FindAllSubmatch(seen.body, -1) {
		form.Set(string(f[1]), string(f[2]))
	}
	for range 2 { // a double click
		a := c.send("/admin/idempotency/act", form.Encode(), "Content-Type", "application/x-www-form-urlencoded",
			"Sec-Fetch-Site", "same-origin", "Authorization", login)
		require.Equal(c.t, 303, a.status, "%s", a.body)
	}
	c.expect("201", "/charges", `{"amount":5}`, "Idempotency-Key", "lost")
	c.expect("201 replayed", "/charges", `{"amount":5}`, "Idempotency-Key", "lost")
	c.ran(1, "POST /charges")
}

func panics(c *client) {
	c.expect("500", "/orders", `{"sku":"explosive"}`, "X-Demo-Panic", "1")
	c.expect("500", "/payments", `{}`, "Idempotency-Key", "panics", "X-Demo-Panic", "1")
	c.expect("201", "/orders", `{"sku":"explosive"}`)
	c.expect("201", "/payments", `{}`, "Idempotency-Key", "panics")
	c.ran(2, "POST /orders")
	c.ran(2, "POST /payments")
}

func largeResponses(c *client) {
	a := c.expect("201", "/orders", `{"sku":"large"}`, "X-Demo-Bytes", "2000000")
	require.Len(c.t, a.body, 2_000_000)
	require.NotEmpty(c.t, a.member("order_id"))
	c.expect("409 result_unavailable", "/orders", `{"sku":"large"}`, "X-Demo-Bytes", "2000000")

	a = c.expect("201", "/orders", `{"sku":"at the limit"}`, "X-Demo-Bytes", "1048576")
	again := c.expect("201 replayed", "/orders", `{"sku":"at the limit"}`)
	require.Len(c.t, again.body, 1<<20)
	require.Equal(c.t, a.member("order_id"), again.member("order_id"))
	c.ran(2, "POST /orders")
}

func secondLikes(c *client) {
	c.expect("422", "/likes", `{"post":"42"}`, "X-Demo-Error", "422") // no success: no window
	c.ran(1, "POST /likes")
	first := c.expect("200", "/likes", `{"post":"42"}`)
	second := c.expect("409 duplicate", "/likes", `{"post":"42"}`)
	require.Equal(c.t, "You like this already.", second.member("detail"))
	c.expect("200", "/likes", `{"post":"43"}`)
	c.ran(2, "POST /likes")

	later := c.eventually("200", "/likes", `{"post":"42"}`) // the window has passed
	require.NotEqual(c.t, first.member("like_id"), later.member("like_id"))
	c.ran(1, "POST /likes")
}

func coupons(c *client) {
	first := c.expect("200", "/coupons", `{}`)
	second := c.expect("200", "/coupons", `{}`)
	require.NotEqual(c.t, first.member("coupon_id"), second.member("coupon_id"))
	c.ran(2, "POST /coupons")
}

func duplicatesOfRunningHandlers(c *client) {
	routes := []struct {
		path, name, status string
		fields             []string
	}{
		{"/orders", "POST /orders", "201", nil},
		{"/coupons", "POST /coupons", "200", nil},
		{"/payments", "POST /payments", "201", []string{"Idempotency-Key", "slow"}},
		{"/transfers", "POST /transfers", "201", []string{"Idempotency-Key", "slow"}},
	}
	firsts := make([]chan answer, len(routes))
	for i, r := range routes {
		firsts[i] = make(chan answer, 1)
		go func() { firsts[i] <- c.send(r.path, `{"sku":"slow"}`, append(r.fields, "X-Demo-Sleep", slow)...) }()
	}
	for _, r := range routes {
		c.running(1, r.name)
	}

	c.expect("409 in_progress", "/orders", `{"sku":"slow"}`)
	c.expect("409 in_progress", "/coupons", `{"sku":"slow"}`)
	c.expect("409 in_progress", "/payments", `{"sku":"slow"}`, "Idempotency-Key", "slow")
	c.expect("422 key_reused", "/payments", `{"sku":"other"}`, "Idempotency-Key", "slow")
	waited := c.expect("201 replayed", "/transfers", `{"sku":"slow"}`, "Idempotency-Key", "slow")

	for i, r := range routes {
		a := <-firsts[i]
		require.NoError(c.t, a.err)
		require.Equal(c.t, r.status, a.summary())
		if r.path == "/transfers" {
			require.Equal(c.t, a.body, waited.body)
		}
		c.ran(1, r.name)
	}
	c.expect("201 replayed", "/orders", `{"sku":"slow"}`)
	c.expect("200", "/coupons", `{"sku":"slow"}`)
	c.ran(1, "POST /coupons")
}

func theClientLeaves(c *client) {
	ctx, leave := context.WithCancel(c.t.Context())
	left := make(chan error, 1)
	go func() {
		left <- c.sendWith(ctx, "/orders", `{"sku":"left alone"}`, "X-Demo-Sleep", slow).err
	}()
	c.running(1, "POST /orders")
	leave()
	require.ErrorIs(c.t, <-left, context.Canceled)
	c.eventually("201 replayed", "/orders", `{"sku":"left alone"}`)
	c.ran(1, "POST /orders")
}

// A handler that would give up is not made to by a client that leaves: what was begun is finished.
func handlersThatGiveUp(c *client) {
	ctx, leave := context.WithCancel(c.t.Context())
	left := make(chan error, 1)
	go func() {
		left <- c.sendWith(ctx, "/orders", `{"sku":"not given up"}`, "X-Demo-Sleep", slow, "X-Demo-Give-Up", "1").err
	}()
	c.running(1, "POST /orders")
	leave()
	require.ErrorIs(c.t, <-left, context.Canceled)
	c.eventually("201 replayed", "/orders", `{"sku":"not given up"}`)
	c.ran(1, "POST /orders")
}

func malformedDemoFields(c *client) {
	c.expect("400", "/coupons", `{}`, "X-Demo-Give-Up", "perhaps")
	c.expect("400", "/coupons", `{}`, "X-Demo-Sleep", "soon")
	c.expect("400", "/coupons", `{}`, "X-Demo-Bytes", "many")
	c.ran(3, "POST /coupons")
}

func theProgramEnds(c *client) {
	last := make(chan answer, 1)
	go func() { last <- c.send("/orders", `{"sku":"last"}`, "X-Demo-Sleep", "300ms") }()
	c.running(1, "POST /orders")
	c.process.Ask(c.t)
	a := <-last
	require.NoError(c.t, a.err)
	require.Equal(c.t, "201", a.summary())
}
