package browser_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/examples/internal/program"
	"github.com/idem-go/idem/examples/shop"
)

const (
	checkout      = "POST /checkout"
	registrations = "POST /registrations"
)

// scenes are what people do. Each has a shop of its own.
var scenes = []struct {
	name string
	play func(p *tab)
}{
	{"one order", oneOrder},
	{"double click", doubleClick},
	{"double click without JavaScript", withoutScript(doubleClickUnaided)},
	{"Enter twice", enterTwice},
	{"Enter twice without JavaScript", withoutScript(enterTwice)},
	{"reload of the result", reloadOfTheResult},
	{"back and submit again", func(p *tab) { rememberingBack(p, true) }},
	{"back and submit again without JavaScript", withoutScript(backAndSubmitAgain)},
	{"back and submit something else", backAndSubmitSomethingElse},
	{"two tabs with one token", twoTabs},
	{"asked whether to leave", askedWhetherToLeave},
	{"slow server, impatient clicks", impatientClicks},
	{"slow server, impatient clicks without JavaScript", withoutScript(impatientClicksUnaided)},
	{"mistakes", mistakes},
	{"mistakes without JavaScript", withoutScript(mistakes)},
	{"the token has expired", expired},
	{"session of another user", anotherSession},
	{"no cookies", noCookies},
	{"offline when the form is sent", offlineForm},
	{"offline when a script sends", offlineScript},
	{"the answer to a script is lost", lostAnswer},
	{"a page of another site", anotherSite},
	{"keyboard only", keyboardOnly},
	{"what a screen reader says", screenReader},
	{"a small phone", smallPhone},
	{"the operator's page, on a small phone", operator},
}

// admin is the -admin of each shop.
const admin = "ann:secret"

func TestShop(t *testing.T) {
	people := launch(t)
	forgetful := launch(t, chromedp.Flag("disable-features", "BackForwardCache"))
	dir := program.Build(t, "..", programs()...)
	for _, name := range programs() {
		t.Run(name, func(t *testing.T) {
			for _, scene := range scenes {
				t.Run(scene.name, func(t *testing.T) {
					t.Parallel()
					scene.play(newPerson(t, people, program.Start(t, filepath.Join(dir, name), "-admin", admin)))
				})
			}
			t.Run("back and submit again without a back/forward cache", func(t *testing.T) {
				t.Parallel()
				rememberingBack(newPerson(t, forgetful, program.Start(t, filepath.Join(dir, name))), false)
			})
		})
	}
}

// order opens the form and fills it in, but for the button.
func (p *tab) order() (token string) {
	p.Helper()
	p.open("/checkout")
	p.fill("#name", "Ann")
	p.fill("#tins", "2")
	return p.token()
}

const tokenField = "[name=" + core.TokenField + "]"

func (p *tab) token() string { p.Helper(); return p.value(tokenField) }

func (p *tab) setToken(token string) {
	p.Helper()
	eval[bool](p, fmt.Sprintf(`(document.querySelector(%q).value = %q, true)`, tokenField, token))
}

// receipt waits for the receipt, checks that one order exists, and returns its path.
func (p *tab) receipt() string {
	p.Helper()
	p.until(`location.pathname.startsWith("/receipts/") && document.readyState == "complete"`)
	require.Equal(p, "Thank you, Ann", p.text("h1"))
	require.Equal(p, "1", p.text("#orders"), "orders")
	return eval[string](p, `location.pathname`)
}

// shows waits for a page that has a title.
func (p *tab) shows(title string) {
	p.Helper()
	p.until(fmt.Sprintf(`document.title == %q && document.readyState == "complete"`, title+" – The tea shop"))
}

// back goes back to a page with a title, as the button of the browser does.
func (p *tab) back(title string) {
	p.Helper()
	history := callFor(p, page.GetNavigationHistory, cdp.Empty{})
	callFor(p, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: history.Entries[history.CurrentIndex-1].ID})
	p.shows(title)
	// A picture waits for the page to be painted: one out of the browser's cache takes no click before, and none at all
	// if it gets one before.
	callFor(p, page.CaptureScreenshot, page.CaptureScreenshotParams{})
}

// kept checks that what order has typed is still there.
func (p *tab) kept() {
	p.Helper()
	require.Equal(p, "Ann", p.value("#name"))
	require.Equal(p, "2", p.value("#tins"))
}

func oneOrder(p *tab) {
	p.order()
	p.click("button", 1)
	p.receipt()
	require.Equal(p, "1", p.text("#submits"))
	require.Contains(p, p.text("dl"), "19.00 €")
	require.Equal(p, 1, p.ran(checkout))
}

func doubleClick(p *tab) {
	p.order()
	p.slowly(300 * time.Millisecond)
	p.click("button", 2)
	p.receipt()
	require.Equal(p, "1", p.text("#submits"), "the script sends a form once")
	require.Equal(p, 1, p.ran(checkout))
}

func doubleClickUnaided(p *tab) {
	p.order()
	p.slowly(300 * time.Millisecond)
	p.click("button", 2)
	p.receipt()
	require.Equal(p, 1, p.ran(checkout))
}

func enterTwice(p *tab) {
	p.order()
	p.slowly(300 * time.Millisecond)
	p.do(chromedp.KeyEvent("\r"), chromedp.KeyEvent("\r"))
	p.receipt()
	require.Equal(p, 1, p.ran(checkout))
}

func reloadOfTheResult(p *tab) {
	p.order()
	p.click("button", 1)
	first := p.receipt()
	p.do(chromedp.Reload())
	require.Equal(p, first, p.receipt())
	require.Equal(p, "1", p.text("#submits"), "a reload of the receipt sends nothing")
	require.Equal(p, 1, p.ran(checkout))
}

// rememberingBack makes sure that the browser has, or has not, taken the page out of its back/forward cache.
func rememberingBack(p *tab, cached bool) {
	p.order()
	eval[bool](p, `(addEventListener("pageshow", e => window.cached = e.persisted), true)`)
	p.click("button", 1)
	p.receipt()
	p.back("Checkout")
	p.until(fmt.Sprintf(`(window.cached ?? false) == %t`, cached))
	backAndSubmitAgain(p)
}

func backAndSubmitAgain(p *tab) {
	token := p.order()
	p.click("button", 1)
	first := p.receipt()
	ran := p.ran(checkout)
	for submits := range 2 {
		p.back("Checkout")
		p.kept()
		require.Equal(p, token, p.token())
		p.click("button", 1)
		require.Equal(p, first, p.receipt())
		require.Equal(p, fmt.Sprint(submits+2), p.text("#submits"))
	}
	require.Equal(p, ran, p.ran(checkout))
}

func backAndSubmitSomethingElse(p *tab) {
	p.order()
	p.click("button", 1)
	first := p.receipt()
	p.back("Checkout")
	p.fill("#tins", "3")
	p.click("button", 1)
	p.shows("Already ordered")
	require.Contains(p, p.text(".notice"), "You have sent this form before")
	p.click(`.notice a[href^="/receipts/"]`, 1)
	require.Equal(p, first, p.receipt())
	require.Contains(p, p.text("dl"), "2 × Assam")
	require.Equal(p, 1, p.ran(checkout))
}

func twoTabs(p *tab) {
	token := p.order()
	q := p.another() // "duplicate tab"
	q.order()
	q.setToken(token)
	for _, tab := range []*tab{p, q} {
		tab.slowly(300 * time.Millisecond)
	}
	p.click("button", 1)
	q.click("button", 1)
	require.Equal(p, p.receipt(), q.receipt())
	require.Equal(p, "2", q.text("#submits"))
	require.Equal(p, 1, p.ran(checkout))
}

// askedWhetherToLeave: the person stays at first, and can send the form all the same. It has a field that hides a method of the
// form's own.
func askedWhetherToLeave(p *tab) {
	p.order()
	eval[bool](p, `(document.querySelector("form").append(Object.assign(document.createElement("input"), { type: "hidden", name: "hasAttribute" })),
		addEventListener("beforeunload", e => e.preventDefault()), true)`)
	asked := make(chan bool, 2)
	require.NoError(p, chromedp.Listen(p.ctx, func(e any) {
		if _, ok := e.(*page.EventJavascriptDialogOpening); ok {
			leave := len(asked) > 0
			asked <- leave
			go callFor(p, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: leave})
		}
	}))
	p.click("button", 1)
	require.Eventually(p, func() bool { return len(asked) == 1 }, patience, 5*time.Millisecond)
	p.until(`!document.querySelector("button").disabled && document.activeElement.tagName == "BUTTON"`)
	require.Equal(p, 0, p.ran(checkout))
	p.click("button", 1)
	p.receipt()
	require.Equal(p, "1", p.text("#submits"))
}

// running waits until the handler of a route has begun.
func (p *tab) running(route string) {
	p.Helper()
	require.Eventually(p, func() bool { return p.ran(route) > 0 }, patience, 5*time.Millisecond)
}

func impatientClicks(p *tab) {
	p.order()
	p.slowly(4 * time.Second)
	// A page that waits can't be asked, so it writes down what it shows.
	eval[bool](p, `(new MutationObserver(() => {
		if (document.querySelector("button").disabled) sessionStorage.status = document.querySelector(".status").innerText;
	}).observe(document.querySelector("form"), { subtree: true, childList: true, attributes: true, characterData: true }), true)`)
	click := p.aim("button")
	click(1)
	p.running(checkout)
	click(3)
	p.receipt()
	require.Equal(p, "1", p.text("#submits"))
	require.Equal(p, "Your order is being sent.", eval[string](p, `sessionStorage.status ?? ""`))

	p.back("Checkout")
	require.False(p, eval[bool](p, `document.querySelector("button").disabled`), "back in the form, it can be sent")
	require.Empty(p, p.text(".status"))
	require.Equal(p, 1, p.ran(checkout))
}

// Each click makes the browser give up the submit before it. The shop finishes what it has begun, and those that
// come later wait for it.
func impatientClicksUnaided(p *tab) {
	p.order()
	p.slowly(4 * time.Second)
	click := p.aim("button")
	click(1)
	p.running(checkout)
	click(3)
	p.receipt()
	require.NotEqual(p, "1", p.text("#submits"))
	require.Equal(p, 1, p.ran(checkout))
}

func mistakes(p *tab) {
	p.open("/checkout")
	token := p.token()
	p.fill("#tins", "0")
	p.fill("#card", "0000")
	p.click("button", 1)
	p.shows("Error: Checkout")
	p.until(`document.activeElement.className == "notice"`) // the focus is on what has to be known
	for _, field := range []string{"name", "tins", "card"} {
		require.Equal(p, "true", eval[string](p, fmt.Sprintf(`document.getElementById(%q).getAttribute("aria-invalid")`, field)))
		require.NotEmpty(p, p.text("#"+field+"-error"))
	}
	require.Equal(p, "0", p.value("#tins"))
	require.Equal(p, "0000", p.value("#card"))
	require.Equal(p, token, p.token(), "it is given back")
	require.Equal(p, 1, p.ran(checkout))

	p.click(`.notice a[href="#name"]`, 1)
	p.until(`document.activeElement.id == "name"`)
	p.fill("#name", "Ann")
	p.fill("#tins", "2")
	p.fill("#card", "1234")
	p.click("button", 1)
	p.receipt()
	require.Equal(p, 2, p.ran(checkout))
}

// tokenThatHasExpired issues a token as the shop has, which was good for a nanosecond.
func (p *tab) tokenThatHasExpired() string {
	p.Helper()
	store, err := memstore.New(memstore.Config{})
	require.NoError(p, err)
	options := shop.Options{Secret: shop.DefaultSecret, Lease: 30 * time.Second, TokenLifetime: time.Nanosecond}
	guards, err := shop.NewGuards(options, &shop.Store{Store: store})
	require.NoError(p, err)
	cookies := ""
	for _, cookie := range p.cookies() {
		cookies += cookie.Name + "=" + cookie.Value
	}
	token, err := guards.Checkout.NewToken(p.Context(), &core.Request{Headers: header{"Cookie": cookies}})
	require.NoError(p, err)
	return token
}

type header map[string]string

func (h header) Header(name string, _ int) (string, int) {
	if v := h[name]; v != "" {
		return v, 1
	}
	return "", 0
}

func (p *tab) cookies() []*network.Cookie {
	p.Helper()
	return callFor(p, network.GetCookies, network.GetCookiesParams{}).Cookies
}

func expired(p *tab) {
	p.order()
	token := p.tokenThatHasExpired()
	p.setToken(token)
	p.click("button", 1)
	p.shows("This form was open for too long")
	require.Contains(p, p.text(".notice"), "Nothing was ordered")
	p.kept()
	require.Equal(p, 0, p.ran(checkout))
	p.click("button", 1)
	first := p.receipt()

	p.back("This form was open for too long")
	p.kept()
	p.click("button", 1)
	require.Equal(p, first, p.receipt())
	p.back("This form was open for too long")
	p.back("Checkout")
	p.kept()
	p.setToken(token)
	p.click("button", 1)
	require.Equal(p, first, p.receipt())
	require.Equal(p, 1, p.ran(checkout))
}

func anotherSession(p *tab) {
	p.order()
	p.click("button", 1)
	anns := p.receipt()

	p.order()
	callFor(p, network.ClearBrowserCookies, cdp.Empty{})
	q := p.another()
	q.open("/checkout") // somebody else, in the same browser
	p.click("button", 1)
	p.shows("This form belongs to another session")
	require.Contains(p, p.text(".notice"), "cookies")
	p.kept()
	require.Equal(p, 1, p.ran(checkout))
	p.click("button", 1)
	p.receipt()
	require.Equal(p, 2, p.ran(checkout))

	p.open(anns)
	p.shows("404 Not Found")
}

// Without cookies there is no session, and nothing is ordered. The page says why.
func noCookies(p *tab) {
	p.order()
	for range 2 {
		callFor(p, network.ClearBrowserCookies, cdp.Empty{})
		p.click("button", 1)
		p.shows("This form belongs to another session")
		require.Contains(p, p.text(".notice"), "allow this site to set cookies")
		p.kept()
		eval[bool](p, `(document.title = "the page before", true)`)
	}
	require.Equal(p, 0, p.ran(checkout))
}

func (p *tab) offline(offline bool) {
	p.Helper()
	callFor(p, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1}},
	})
}

func offlineForm(p *tab) {
	token := p.order()
	p.offline(true)
	p.click("button", 1)
	p.until(`location.protocol == "chrome-error:"`)
	p.offline(false)
	p.back("Checkout")
	p.kept()
	require.Equal(p, token, p.token())
	p.click("button", 1)
	p.receipt()
	require.Equal(p, 1, p.ran(checkout))
}

// tasting opens a page whose script can send a registration.
func (p *tab) tasting() {
	p.Helper()
	p.open("/checkout")
	eval[bool](p, `(async () => {
		const { token } = await fetch("/tokens").then(r => r.json());
		window.send = () => idem.fetch("/registrations", { method: "POST", body: '{"name":"Ann"}', headers: { "X-Idempotency-Token": token } })
			.then(async r => { window.answer = { status: r.status, replayed: r.headers.get("Idempotent-Replayed"), ...await r.json() } });
		return true;
	})()`)
}

// registered waits for the answer that the script gets.
func (p *tab) registered() (replayed bool) {
	p.Helper()
	p.until(`window.answer != null`)
	require.Equal(p, 201.0, eval[float64](p, `answer.status`))
	require.Regexp(p, "^reg_", eval[string](p, `answer.registration_id`))
	require.Equal(p, 1, p.ran(registrations))
	return eval[bool](p, `answer.replayed == "true"`)
}

func offlineScript(p *tab) {
	p.tasting()
	p.offline(true)
	eval[bool](p, `(send(), true)`)
	p.until(`performance.getEntriesByType("resource").some(e => e.name.endsWith("/registrations"))`)
	p.offline(false)
	require.False(p, p.registered())
}

// lostAnswer: the shop has registered, but the connection breaks before it can say so.
func lostAnswer(p *tab) {
	p.tasting()
	callFor(p, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{
		{URLPattern: "*/registrations", RequestStage: fetch.RequestStageResponse},
	}})
	answers := chromedp.Events(p.ctx, fetch.RequestPaused)
	eval[bool](p, `(send(), true)`)
	n := 0
	for answer, err := range answers {
		require.NoError(p, err)
		require.Equal(p, int64(201), answer.ResponseStatusCode)
		if n++; n == 2 {
			callFor(p, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: answer.RequestID})
			break
		}
		callFor(p, fetch.FailRequest, fetch.FailRequestParams{RequestID: answer.RequestID, ErrorReason: network.ErrorReasonConnectionReset})
	}
	require.True(p, p.registered(), "the second answer is the first one again")
}

// anotherSite: a page of somebody else's knows everything, a token too, and has the victim's browser send it.
func anotherSite(p *tab) {
	token := p.order()
	attacker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<title>Win a prize</title><form method="post" action="%s/checkout"><input type="hidden" name="%s" value="%s">
			<input type="hidden" name="name" value="Ann"><input type="hidden" name="tea" value="Assam"><input type="hidden" name="tins" value="99"><button>Win</button></form>`,
			p.shop.URL, core.TokenField, token)
	}))
	defer attacker.Close()
	crossSite := strings.Replace(attacker.URL, "127.0.0.1", "localhost", 1)
	for _, url := range []string{attacker.URL, crossSite} { // with the victim's cookie, and without
		p.do(chromedp.Navigate(url))
		p.click("button", 1)
		p.shows("403 Forbidden")
		require.Contains(p, p.text(".notice"), "not the shop's")
	}
	require.Equal(p, 0, p.ran(checkout))
}

// keyboardOnly: nothing has to be skipped, one sees where one is, and everything can be reached.
func keyboardOnly(p *tab) {
	p.open("/checkout")
	for _, typed := range []string{"Ann", "S", "", "", ""} { // a select forgets what was typed a second ago
		p.do(chromedp.KeyEvent("\t"))
		require.NotEqual(p, "none", eval[string](p, `getComputedStyle(document.activeElement).outlineStyle`), "the focus can be seen")
		if typed != "" {
			p.do(chromedp.KeyEvent(typed))
		}
	}
	require.Equal(p, "BUTTON", eval[string](p, `document.activeElement.tagName`))
	p.do(chromedp.KeyEvent("\r"))
	p.receipt()
	require.Contains(p, p.text("dl"), "1 × Sencha")
}

// screenReader looks at the page with mistakes as assistive technology does.
func screenReader(p *tab) {
	p.open("/checkout")
	p.fill("#card", "0000")
	p.click("button", 1)
	p.shows("Error: Checkout")
	require.Equal(p, "en", eval[string](p, `document.documentElement.lang`))

	said := map[string]string{}
	roles := map[string]int{}
	for _, node := range callFor(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if node.Ignored {
			continue
		}
		text := func(v *accessibility.Value) (s string) {
			if v != nil {
				_ = json.Unmarshal(v.Value, &s) // what is no string says nothing
			}
			return s
		}
		role := text(node.Role)
		roles[role]++
		switch role {
		case "textbox", "combobox", "button":
			said[role+" "+text(node.Name)] = text(node.Description)
		}
	}
	require.Equal(p, map[string]string{
		"textbox Your name":            "Error: Enter your name, in at most 100 characters.",
		"combobox Tea":                 "9.50 € a tin",
		"textbox Tins":                 "",
		"textbox Gift card (optional)": "To see one declined, enter 0000. Error: The gift card was declined. Enter another one, or none.",
		"button Order":                 "",
	}, said)
	require.Equal(p, 1, roles["main"])
	require.Equal(p, 1, roles["banner"])
	require.Equal(p, 1, roles["alert"])
}

// smallPhone goes through all kinds of pages, light and dark: nothing is cut off, everything is large enough
// for a finger, and can be read.
func smallPhone(p *tab) {
	p.viewport(360, 640)
	look := p.fitsSmallPhone
	p.order()
	look()
	p.fill("#name", strings.Repeat("W", 60))
	p.fill("#card", "0000")
	p.click("button", 1)
	p.shows("Error: Checkout")
	look()
	p.fill("#name", "Ann")
	p.fill("#card", "")
	p.click("button", 1)
	p.receipt()
	look()
	p.back("Error: Checkout")
	p.fill("#tins", "3")
	p.click("button", 1)
	p.shows("Already ordered")
	look()
}

func (p *tab) fitsSmallPhone() {
	p.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.prefers(scheme)
		require.LessOrEqual(p, eval[float64](p, `document.scrollingElement.scrollWidth`), 360.0, "nothing is cut off")
		require.Equal(p, []string{}, eval[[]string](p, tooSmall), "for a finger")
		require.Equal(p, []string{}, eval[[]string](p, tooFaint), "too faint to be read, %s", scheme)
	}
}

// wide is true if each digest of the list is on one line, and nothing is beyond the window.
const wide = `document.scrollingElement.scrollWidth <= innerWidth &&
	[...document.querySelectorAll("a.digest")].every(a => a.getClientRects().length == 1)`

// charge sends a charge as a program does, and returns the status. The first one does not know whether it has charged.
func (p *tab) charge(fields ...string) int {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), http.MethodPost, p.shop.URL+"/charges", strings.NewReader(`{"amount":5}`))
	require.NoError(p, err)
	r.Header.Set("X-User", "ann")
	r.Header.Set("Idempotency-Key", "c-17")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(p, err)
	require.NoError(p, resp.Body.Close())
	return resp.StatusCode
}

// operator finds a charge whose outcome is uncertain, and lets it run again.
func operator(p *tab) {
	p.viewport(360, 640)
	require.NoError(p, chromedp.Listen(p.ctx, func(e any) {
		if e, ok := e.(*log.EventEntryAdded); ok && e.Entry.Level == log.EntryLevelError && strings.Contains(e.Entry.URL, "/admin/") {
			p.Errorf("in the console: %s", e.Entry.Text)
		}
	}))
	p.header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(admin)))
	p.open("/admin/idempotency/")
	p.fitsOperator()
	require.Contains(p, p.text("main"), "Nothing needs you")
	require.Contains(p, p.text("main"), "Send a request to a guarded route")

	require.Equal(p, 503, p.charge("X-Demo-Status", "503"))
	require.Equal(p, 409, p.charge())
	p.open("/admin/idempotency/")
	p.fitsOperator()
	require.Regexp(p, `(?s)^Needs somebody now.*Find out.*abandoned.*POST /charges`, p.text(".needs"))
	require.Contains(p, p.text("table"), "abandoned")
	p.click(".needs a.digest", 1)
	p.until(release)
	p.fitsOperator()
	require.Equal(p, []string{"Begun", "Not finished", "abandoned", "Record is forgotten"}, eval[[]string](p, moments))
	require.True(p, eval[bool](p, drawn))
	p.fill("form[action=act] input[name=reason]", "the bank knows nothing of it")
	p.click("form[action=act] input[name=sure]", 1)
	p.click("form[action=act] button", 2) // impatient
	p.until(`document.body.textContent.includes("Free: the next request runs")`)
	p.fitsOperator()
	require.Equal(p, []string{"Begun", "Released by an operator", "free", "Record is forgotten"}, eval[[]string](p, moments))
	require.Equal(p, 201, p.charge())
	p.open("/admin/idempotency/?state=done")
	require.Contains(p, p.text("table"), "POST /charges")
	p.click("a.digest", 1)
	p.until(`document.querySelector("h1 .chip")?.textContent == "done"`)
	p.fitsOperator()
	require.Equal(p, []string{"Begun", "Attempt 2", "Finished", "done", "Result is no longer kept"}, eval[[]string](p, moments))
	require.True(p, eval[bool](p, drawn))

	user := strings.Repeat("wide", 15)
	require.Equal(p, 201, p.charge("X-User", user))
	for _, width := range []int64{360, 800, 1024, 1100, 1280} {
		p.viewport(width, 640)
		p.open("/admin/idempotency/")
		require.Contains(p, p.text("table"), user)
		require.True(p, eval[bool](p, wide), "at %d pixels", width)
		require.True(p, eval[bool](p, `(s => s.scrollWidth > s.clientWidth)(document.querySelector("td summary"))`), "it is cut")
		p.click("td summary", 1)
		require.Equal(p, user, p.text("td details[open] .whole"))
		require.True(p, eval[bool](p, wide), "at %d pixels, with the whole", width)
	}
}

// fitsOperator is fitsSmallPhone, and whether headings are in order.
func (p *tab) fitsOperator() {
	p.Helper()
	p.until(`document.readyState == "complete"`) // with its style
	p.fitsSmallPhone()
	levels := eval[[]string](p, `[...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(e => e.tagName[1])`)
	require.Regexp(p, "^1(2(3*))*$", strings.Join(levels, ""))
}

// What the page of an operation has: a form to release it, the moments of its time line, and their picture.
const (
	release = `document.readyState == "complete" && [...document.querySelectorAll("h3")].some(e => e.textContent == "Release")`
	moments = `[...document.querySelectorAll(".timeline h3")].map(e => e.innerText)`
	drawn   = `(([past, left]) => past.width >= 0 && left.width > 0 && Math.abs(past.right - left.left) < 1)(
		[...document.querySelectorAll(".lane rect")].map(e => e.getBoundingClientRect()))`
)

// WCAG 2.2, success criterion 2.5.5: 44 pixels, but for links in a text.
const tooSmall = `[...document.querySelectorAll("input:not([type=hidden]), select, button")]
	.filter(e => e.getBoundingClientRect().height < 44 || parseFloat(getComputedStyle(e).fontSize) < 16).map(e => e.outerHTML)`

// WCAG 2.2, success criterion 1.4.3: a contrast of 4.5 to 1.
const tooFaint = `(() => {
	const channels = c => c.match(/[\d.]+/g).map(Number);
	const luminance = c => channels(c).slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = e => e == null || channels(getComputedStyle(e).backgroundColor)[3] !== 0 ? e : behind(e.parentElement);
	return [...document.querySelectorAll("body *")].filter(e => {
		if (![...e.childNodes].some(n => n.nodeType == Node.TEXT_NODE && n.data.trim()) || e.tagName == "SCRIPT") return false;
		const [a, b] = [getComputedStyle(e).color, getComputedStyle(behind(e)).backgroundColor].map(luminance);
		return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
	}).map(e => e.outerHTML);
})()`
