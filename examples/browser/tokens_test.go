package browser_test

import (
	"crypto/rand"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/examples/internal/program"
	"github.com/idem-go/idem/httpidem"
)

// The code of docs/tokens.md stands here as it stands there, and runs, also in a browser.

func tokenService(engine *core.Engine, secrets [][]byte, form *template.Template, checkout http.HandlerFunc, addr string) *http.Server {
	tokens := core.MustTokens(core.TokenConfig{Secrets: secrets}) // at least 32 random bytes each
	policy := core.OneShotToken(tokens)
	policy.Name = "order" // what these tokens are good for
	orders := engine.MustGuard(policy)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /checkout", func(w http.ResponseWriter, r *http.Request) {
		token, err := httpidem.NewToken(r, orders)
		if httpidem.Refuse(w, r, err) { // the request has no user, or the user has asked for too many tokens
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "private, no-cache") // see "Browsers"
		_ = form.Execute(w, core.TokenInput(token))
	})
	mux.Handle("POST /checkout", httpidem.New(orders)(http.HandlerFunc(checkout)))

	mux.Handle("GET /tokens", httpidem.IssueToken(orders))

	protection := http.NewCrossOriginProtection()
	server := &http.Server{Addr: addr, Handler: protection.Handler(mux)}
	return server
}

func TestTokens(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	form := template.Must(template.New("").Parse(`<form method="post" action="/checkout?send">{{.}}</form>`))
	ran := 0
	checkout := func(w http.ResponseWriter, r *http.Request) {
		ran++
		if r.FormValue("name") == "" {
			http.Error(w, "Enter your name.", http.StatusUnprocessableEntity)
			return
		}
		http.Redirect(w, r, "/receipts/1", http.StatusSeeOther)
	}
	server := tokenService(engine, [][]byte{[]byte(rand.Text() + rand.Text())}, form, checkout, "")
	send := func(method, path, body string, fields ...string) *http.Response {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("X-User", "ann")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r)
		return w.Result()
	}
	shown, err := io.ReadAll(send("GET", "/checkout", "").Body)
	require.NoError(t, err)
	token := regexp.MustCompile(`value="([^"]+)"`).FindStringSubmatch(string(shown))[1]

	for _, step := range []struct {
		body    string
		status  int
		refused codes.Code
		fields  []string
	}{
		{"name=Ann", 400, codes.TokenMissing, nil},
		{"name=Ann&idempotency_token=" + token, 403, "", []string{"Sec-Fetch-Site", "cross-site"}},
		{"name=Ann&idempotency_token=" + token, 403, codes.TokenInvalid, []string{"X-User", "bob"}},
		{"name=&idempotency_token=" + token, 422, "", nil},
		{"name=Ann&idempotency_token=" + token, 303, "", nil},
		{"name=Ann&idempotency_token=" + token, 303, "", nil},
		{"name=Ann", 303, "", []string{core.TokenHeader, token}},
		{"name=Bob&idempotency_token=" + token, 422, codes.KeyReused, nil},
	} {
		resp := send("POST", "/checkout?send", step.body, step.fields...)
		require.Equal(t, step.status, resp.StatusCode, step.body)
		require.Equal(t, string(step.refused), resp.Header.Get(core.RefusedHeader), step.body)
		if step.status == 303 {
			require.Equal(t, "/receipts/1", resp.Header.Get("Location"))
		}
	}
	require.Equal(t, 2, ran)
	require.Equal(t, 200, send("GET", "/tokens", "").StatusCode)
	require.Equal(t, 400, send("GET", "/checkout", "", "X-User", "").StatusCode)
}

// TestMountedForm: who clicks twice on the page's form gets the receipt.
func TestMountedForm(t *testing.T) {
	var ran atomic.Int64
	const page = `<!doctype html><form method="post" action="/checkout?send">{{.}}<button>Order</button></form>`
	form := template.Must(template.New("").Parse(page))
	checkout := func(w http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		time.Sleep(300 * time.Millisecond) // the other click comes meanwhile
		http.Redirect(w, r, "/receipts/1", http.StatusSeeOther)
	}
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	service := tokenService(engine, [][]byte{[]byte(rand.Text() + rand.Text())}, form, checkout, "")
	server := httptest.NewServer(service.Handler)
	t.Cleanup(server.Close)
	p := newPerson(t, launch(t), &program.Process{URL: server.URL})
	p.open("/checkout")
	p.click("button", 2)
	p.until(`location.pathname == "/receipts/1"`)
	require.EqualValues(t, 1, ran.Load())
}
