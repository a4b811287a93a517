package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

// patience is how long a test waits for what must happen at some time.
const patience = 2 * time.Minute

// programs are those of the example programs that are tested.
func programs() []string {
	if names := strings.Fields(os.Getenv("IDEM_BROWSER_PROGRAMS")); len(names) > 0 {
		return names
	}
	return program.Names[:1]
}

// chromium returns the browser's executable. Without one the test is skipped, or fails if it must not be.
func chromium(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err == nil {
		return path
	}
	const missing = "no browser: %v; scripts/backends installs Debian's package chromium"
	if os.Getenv("IDEM_REQUIRE_BACKENDS") == "1" {
		t.Fatalf(missing, err)
	}
	t.Skipf(missing, err)
	return ""
}

// launch starts a browser, which nobody has used before. It ends with the test.
func launch(t *testing.T, features ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	options := append([]chromedp.ExecAllocatorOption{
		chromedp.ExecPath(chromium(t)), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), // it is small in containers
	}, features...)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	require.NoError(t, chromedp.Do(ctx), "starting the browser")
	return ctx
}

// tab is a tab of somebody's browser, and the shop that is open in it.
type tab struct {
	*testing.T
	ctx  context.Context
	shop *program.Process
	size [2]int64 // of the viewport, if one was set
}

// newPerson opens the first tab of somebody who has nothing in common with anybody before.
func newPerson(t *testing.T, browser context.Context, shop *program.Process) *tab {
	t.Helper()
	return newTab(t, browser, shop, chromedp.WithNewBrowserContext())
}

func newTab(t *testing.T, parent context.Context, shop *program.Process, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(parent, options...)
	t.Cleanup(end)
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("a script has failed: %+v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Source == log.EntrySourceSecurity {
				t.Errorf("the browser has kept something out: %s", e.Entry.Text)
			}
		}
	}))
	return &tab{T: t, ctx: ctx, shop: shop}
}

// another opens another tab of the same person.
func (p *tab) another() *tab {
	p.Helper()
	return newTab(p.T, p.ctx, p.shop)
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p, chromedp.Do(ctx, steps...))
}

// eval evaluates an expression in the page.
func eval[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p, err, expression)
	return v
}

// until waits until a condition holds in the page, or in the one that comes after it.
func (p *tab) until(condition string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		if ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](condition)); err == nil && ok {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.FailNow(p, "it did not come true: "+condition, p.text("html"))
}

func (p *tab) open(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.shop.URL + path))
}

// text returns what an element says, "" if there is none.
func (p *tab) text(selector string) string {
	p.Helper()
	return eval[string](p, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector))
}

// value returns what is in a field.
func (p *tab) value(selector string) string {
	p.Helper()
	return eval[string](p, fmt.Sprintf(`document.querySelector(%q).value`, selector))
}

// fill types into a field, in place of what was there.
func (p *tab) fill(selector, text string) {
	p.Helper()
	eval[bool](p, fmt.Sprintf(`(e => { e.focus(); e.select(); return true })(document.querySelector(%q))`, selector))
	if text == "" {
		text = "\b" // deletes what is selected
	}
	p.do(chromedp.KeyEvent(text))
}

// click clicks on the middle of an element, n times in a row, without looking what comes of it.
func (p *tab) click(selector string, n int) {
	p.Helper()
	p.aim(selector)(n)
}

// aim points at an element, for clicks later on. While the browser waits for an answer, a page can be clicked on,
// but not be asked where its elements are.
func (p *tab) aim(selector string) (click func(n int)) {
	p.Helper()
	at := eval[[]float64](p, fmt.Sprintf(`(e => {
		e.scrollIntoView();
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})(document.querySelector(%q))`, selector))
	return func(n int) {
		p.Helper()
		for range n {
			p.do(chromedp.MouseClickXY(at[0], at[1]))
		}
	}
}

// slowly makes the shop take its time for what this tab asks for.
func (p *tab) slowly(d time.Duration) {
	p.Helper()
	p.header("X-Demo-Sleep", d.String())
}

// header adds a header field to all that this tab sends.
func (p *tab) header(name, value string) {
	p.Helper()
	callFor(p, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{name: value}})
}

// viewport makes the tab as large as a phone, or as a window on a desk.
func (p *tab) viewport(width, height int64) {
	p.Helper()
	callFor(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
	p.size = [2]int64{width, height}
}

// settled waits until the page has the size of the viewport, and is where it can be clicked on: a picture of all of it
// makes it larger for a moment.
func (p *tab) settled() {
	p.Helper()
	p.until(fmt.Sprintf(`innerWidth == %d && innerHeight == %d`, p.size[0], p.size[1]))
	eval[bool](p, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// prefers sets the person's colour scheme, "light" or "dark".
func (p *tab) prefers(scheme string) {
	p.Helper()
	callFor(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// withoutScript is a scene with JavaScript switched off.
func withoutScript(play func(p *tab)) func(p *tab) {
	return func(p *tab) {
		callFor(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		play(p)
	}
}

// callFor calls the browser for what chromedp has no word for.
func callFor[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	require.NoError(p, err, command.Method)
	return result
}

// ran returns how often the handler of a route has run.
func (p *tab) ran(route string) int {
	p.Helper()
	resp, err := http.Get(p.shop.URL + "/stats")
	require.NoError(p, err)
	defer resp.Body.Close()
	var stats struct {
		Executions map[string]int `json:"executions"`
	}
	require.NoError(p, json.NewDecoder(resp.Body).Decode(&stats))
	require.Contains(p, stats.Executions, route)
	return stats.Executions[route]
}
