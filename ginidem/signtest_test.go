package ginidem_test

import (
	"io"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

func TestSignatures(t *testing.T) {
	signtest.Run(t, signtest.Harness{Name: "gin", Start: startSigned, Nonces: redisNonces})
}

func startSigned(tb testing.TB, app signtest.App) string {
	gin.SetMode(gin.TestMode)
	engine := gin.New()
	handler := func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		c.Data(200, "application/json", app.Handle(signtest.Seen{
			Context: c.Request.Context(), Verified: func() (sign.Verified, bool) { return ginidem.Verified(c) },
			Method: c.Request.Method, Header: c.GetHeader, Body: body, Err: err,
		}))
	}
	if app.Pattern != "" {
		engine.POST(app.Pattern, ginidem.Verify(app.Verifier), handler)
	} else {
		engine.Use(ginidem.Verify(app.Verifier))
		engine.NoRoute(handler) // gin has no other way to take every method
	}
	return signtest.Listen(tb, engine)
}

// redisNonces are those of n engines, each with a connection of its own. They expire by themselves.
func redisNonces(tb testing.TB, n int) []sign.NonceStore {
	tb.Helper()
	url, prefix := backend.Redis(tb), "signtest:"+core.NewOwner().String()+":"
	stores := make([]sign.NonceStore, n)
	for i := range stores {
		store, err := redisstore.NewURL(url)
		require.NoError(tb, err)
		tb.Cleanup(store.Close)
		stores[i] = core.MustNew(core.Config{Store: store, Prefix: prefix}).Nonces()
	}
	return stores
}
