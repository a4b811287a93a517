package docs_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/limit"
	"github.com/idem-go/idem/httpidem"
)

// The code of limits.md stands here as it stands there, and runs.

// limited lets through what limiter allows to the user, and refuses the rest.
func limited(limiter core.Limiter) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := core.Allow(r.Context(), limiter, r.Header.Get("X-User"))
			if httpidem.Refuse(w, r, err) {
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func limitedGin(limiter core.Limiter) gin.HandlerFunc {
	return func(c *gin.Context) {
		err := core.Allow(c.Request.Context(), limiter, c.GetHeader("X-User"))
		if httpidem.Refuse(c.Writer, c.Request, err) {
			c.Abort()
		}
	}
}

func limitedFiber(limiter core.Limiter) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := core.Allow(c.UserContext(), limiter, c.Get("X-User"))
		resp := core.RefusalResponse(c.UserContext(), err, nil)
		if resp == nil {
			return c.Next()
		}
		for _, field := range resp.Header {
			c.Set(field.Name, field.Value)
		}
		return c.Status(resp.Status).Send(resp.Body)
	}
}

// services mount the page's middleware on GET /search, whose handler answers "found".
var services = map[string]func(searches core.Limiter) func(r *http.Request) (*http.Response, error){
	"net/http": func(searches core.Limiter) func(r *http.Request) (*http.Response, error) {
		search := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "found") })
		mux := http.NewServeMux()
		mux.Handle("GET /search", limited(searches)(search))
		return recorded(mux)
	},
	"Gin": func(searches core.Limiter) func(r *http.Request) (*http.Response, error) {
		r := gin.New()
		r.GET("/search", limitedGin(searches), func(c *gin.Context) { c.String(200, "found") })
		return recorded(r)
	},
	"Echo": func(searches core.Limiter) func(r *http.Request) (*http.Response, error) {
		search := func(c echo.Context) error { return c.String(200, "found") }
		e := echo.New()
		e.GET("/search", search, echo.WrapMiddleware(limited(searches)))
		return recorded(e)
	},
	"Fiber": func(searches core.Limiter) func(r *http.Request) (*http.Response, error) {
		app := fiber.New()
		app.Get("/search", limitedFiber(searches), func(c *fiber.Ctx) error { return c.SendString("found") })
		return func(r *http.Request) (*http.Response, error) { return app.Test(r, -1) }
	},
}

func recorded(h http.Handler) func(r *http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result(), nil
	}
}

// down is a limiter that can't know.
type down struct{}

func (down) Allow(context.Context, string) (time.Duration, error) { return 0, errors.New("no server") }

func TestLimits(t *testing.T) {
	gin.SetMode(gin.TestMode)
	for name, mount := range services {
		t.Run(name, func(t *testing.T) {
			ask := func(send func(r *http.Request) (*http.Response, error), user string) (*http.Response, string) {
				r := httptest.NewRequest("GET", "/search?q=shoes", nil)
				r.Header.Set("X-User", user)
				resp, err := send(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				return resp, string(body)
			}
			send := mount(limit.New(2, 2*24*time.Hour))
			for _, user := range []string{"alice", "bob", "bob", "alice"} {
				resp, body := ask(send, user)
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, "found", body)
			}
			resp, body := ask(send, "alice")
			require.Equal(t, 429, resp.StatusCode)
			require.Equal(t, "rate_limited", resp.Header.Get(core.RefusedHeader))
			require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
			require.Regexp(t, `^86[0-9]{3}$`, resp.Header.Get("Retry-After"), "one comes back in a day")
			require.Contains(t, body, `"code":"rate_limited"`)
			require.NotContains(t, body, "found")

			resp, body = ask(mount(down{}), "alice")
			require.Equal(t, 503, resp.StatusCode)
			require.Contains(t, body, `"code":"store_unavailable"`)
			require.NotContains(t, body, "no server")
		})
	}
}

// goesOn is what the page shows for services that go on when nobody knows.
func goesOn(ctx context.Context, searches core.Limiter, user string) bool {
	wait, err := searches.Allow(ctx, user)
	if err != nil {
		slog.WarnContext(ctx, "not limited", "err", err)
	}
	tooOften := err == nil && wait > 0
	return !tooOften
}

func TestLimitsGoOn(t *testing.T) {
	searches := limit.New(1, time.Hour)
	require.True(t, goesOn(t.Context(), searches, "alice"))
	require.False(t, goesOn(t.Context(), searches, "alice"))
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(before)
	require.True(t, goesOn(t.Context(), down{}, "alice"))
}
