package echoidem_test

import (
	"io"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

func TestSignatures(t *testing.T) {
	signtest.Run(t, signtest.Harness{Name: "echo", Start: startSigned, Nonces: redisNonces})
}

func startSigned(tb testing.TB, app signtest.App) string {
	e := echo.New()
	handler := func(c echo.Context) error {
		r := c.Request()
		body, err := io.ReadAll(r.Body)
		return c.JSONBlob(200, app.Handle(signtest.Seen{
			Context: r.Context(), Verified: func() (sign.Verified, bool) { return echoidem.Verified(c) },
			Method: r.Method, Header: r.Header.Get, Body: body, Err: err,
		}))
	}
	if app.Pattern != "" {
		e.POST(app.Pattern, handler, echoidem.Verify(app.Verifier))
	} else {
		e.Use(echoidem.Verify(app.Verifier))
		e.RouteNotFound("/*", handler) // echo has no other way to take every method
	}
	return signtest.Listen(tb, e)
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
