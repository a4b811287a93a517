package sqlstore_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/httpidem"
)

// TestRunTxInHandlers: in each framework, a handler reports what RunTx returns, and the client gets
// what a guard answers. These are the handlers of docs/sql-transactions.md.
func TestRunTxInHandlers(t *testing.T) {
	b := newBooks(t, engines[2].url(t))
	store, insertOrder := b.store, b.enter("order")
	gone, _ := open(t, engines[2].url(t))
	require.NoError(t, gone.Close())
	db := gone
	engine := core.MustNew(core.Config{Service: "shop", Store: store, User: core.SharedByAllCallers()})
	orders := engine.MustGuard(core.Policy{Key: core.Header(core.Required)})

	gin.SetMode(gin.TestMode)
	ginRouter := gin.New()
	ginRouter.POST("/gin", ginidem.New(orders), func(c *gin.Context) {
		result, err := store.RunTx(c.Request.Context(), db, insertOrder)
		if err != nil {
			_ = c.Error(err)
			return
		}
		c.Data(http.StatusCreated, "application/json", result.Value)
	})
	echoRouter := echo.New()
	echoRouter.POST("/echo", func(c echo.Context) error {
		result, err := store.RunTx(c.Request().Context(), db, insertOrder)
		if err != nil {
			return err
		}
		return c.JSONBlob(http.StatusCreated, result.Value)
	}, echoidem.New(orders))
	app := fiber.New()
	app.Post("/fiber", fiberidem.New(orders), func(c *fiber.Ctx) error {
		result, err := store.RunTx(c.UserContext(), db, insertOrder)
		if err != nil {
			return err
		}
		return c.Status(http.StatusCreated).Type("json").Send(result.Value)
	})
	served := func(h http.Handler) func(*http.Request) *http.Response {
		return func(r *http.Request) *http.Response {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Result()
		}
	}
	for name, serve := range map[string]func(*http.Request) *http.Response{
		"gin": served(ginRouter), "echo": served(echoRouter),
		"nethttp": served(httpidem.New(orders)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			result, err := store.RunTx(r.Context(), db, insertOrder)
			switch {
			case err == nil:
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write(result.Value)
			case !httpidem.Refuse(w, r, err):
				http.Error(w, "the order could not be entered", http.StatusInternalServerError)
			}
		}))),
		"fiber": func(r *http.Request) *http.Response {
			resp, err := app.Test(r, -1)
			require.NoError(t, err)
			return resp
		},
	} {
		post := func() *http.Response {
			r := httptest.NewRequest("POST", "/"+name, nil)
			r.Header.Set("Idempotency-Key", "k-1")
			return serve(r)
		}
		db = gone
		refused := post()
		assert.Equal(t, http.StatusServiceUnavailable, refused.StatusCode, name)
		assert.Equal(t, "application/problem+json", refused.Header.Get("Content-Type"), name)
		assert.Equal(t, "store_unavailable", refused.Header.Get(core.RefusedHeader), name)
		assert.Equal(t, "1", refused.Header.Get("Retry-After"), name)
		body, err := io.ReadAll(refused.Body)
		require.NoError(t, err)
		assert.JSONEq(t, `{"type":"https://github.com/idem-go/idem/blob/main/docs/problems.md#store_unavailable","title":"Store unavailable","status":503,`+
			`"detail":"The operation was not carried out, because it could not be protected against being repeated.","code":"store_unavailable"}`, string(body), name)

		db = b.db
		for range 2 {
			again := post()
			assert.Equal(t, http.StatusCreated, again.StatusCode, name)
		}
	}
	assert.Equal(t, 4, b.count("order"))
}
