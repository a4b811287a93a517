package docs_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
		require.Contains(t, page(t, "tokens.md")+page(t, "operating.md")+page(t, "policies.md"), "("+picture+")")
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
