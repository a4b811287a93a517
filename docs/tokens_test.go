package docs_test

import (
	"crypto/rand"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/httpidem"
)

// The code of tokens.md stands here as it stands there, and runs.

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

// recorded sends requests to h.
func recorded(h http.Handler) func(r *http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result(), nil
	}
}

func TestPicturesAreShown(t *testing.T) {
	pictures, err := filepath.Glob("img/*")
	require.NoError(t, err)
	require.NotEmpty(t, pictures)
	for _, picture := range pictures {
		require.Contains(t, page(t, "tokens.md")+page(t, "operating.md"), "("+picture+")")
		file, err := os.Stat(picture)
		require.NoError(t, err)
		require.Less(t, file.Size(), int64(100<<10), picture)
	}
}

// No guard is in front of a page with a token: its handler answers the refusal, as the page says for each framework.
func TestRefusedPage(t *testing.T) {
	gin.SetMode(gin.TestMode)
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	policy := core.OneShotToken(core.MustTokens(core.TokenConfig{}))
	policy.Name = "order"
	orders := engine.MustGuard(policy)

	onGin := gin.New()
	onGin.GET("/checkout", func(c *gin.Context) {
		token, err := ginidem.NewToken(c, orders)
		if httpidem.Refuse(c.Writer, c.Request, err) {
			return
		}
		c.String(http.StatusOK, token)
	})
	onEcho := echo.New()
	onEcho.GET("/checkout", func(c echo.Context) error {
		token, err := echoidem.NewToken(c, orders)
		if httpidem.Refuse(c.Response(), c.Request(), err) {
			return nil
		}
		return c.String(http.StatusOK, token)
	})
	onFiber := fiber.New()
	onFiber.Get("/checkout", func(c *fiber.Ctx) error {
		token, err := fiberidem.NewToken(c, orders)
		if resp := core.RefusalResponse(c.UserContext(), err, nil); resp != nil { // c.Context() in Fiber v3
			for _, field := range resp.Header {
				c.Set(field.Name, field.Value)
			}
			return c.Status(resp.Status).Send(resp.Body)
		}
		return c.SendString(token)
	})
	for name, send := range map[string]func(*http.Request) (*http.Response, error){
		"Gin": recorded(onGin), "Echo": recorded(onEcho),
		"Fiber": func(r *http.Request) (*http.Response, error) { return onFiber.Test(r, -1) },
	} {
		r := httptest.NewRequest("GET", "/checkout", nil)
		resp, err := send(r)
		require.NoError(t, err, name)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, name)
		require.Equal(t, string(codes.UserMissing), resp.Header.Get(core.RefusedHeader), name)

		r.Header.Set("X-User", "ann")
		resp, err = send(r)
		require.NoError(t, err, name)
		require.Equal(t, http.StatusOK, resp.StatusCode, name)
	}
}
