package fiberidem_test

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

func TestSignatures(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		h := signtest.Harness{Name: "fiber", Start: startSigned(streamed), Nonces: redisNonces, OwnDate: true}
		if streamed {
			h.Name = "fiber with StreamRequestBody"
		}
		t.Run(h.Name, func(t *testing.T) { signtest.Run(t, h) })
	}
}

func startSigned(streamed bool) func(tb testing.TB, app signtest.App) string {
	return func(tb testing.TB, app signtest.App) string {
		f := fiber.New(fiber.Config{
			DisableStartupMessage: true, ReadBufferSize: 64 << 10, RequestMethods: append([]string{"PROPFIND"}, fiber.DefaultMethods...),
			DisablePreParseMultipartForm: true, // what was signed are the form's bytes
			StreamRequestBody:            streamed,
		})
		handler := func(c *fiber.Ctx) error {
			c.Type("json")
			return c.Send(app.Handle(signtest.Seen{
				Context: c.UserContext(), Verified: func() (sign.Verified, bool) { return fiberidem.Verified(c) },
				Method: c.Method(), Header: func(name string) string { return c.Get(name) }, Body: c.BodyRaw(),
			}))
		}
		if app.Pattern != "" {
			f.Post(app.Pattern, fiberidem.Verify(app.Verifier), handler)
		} else {
			f.Use(fiberidem.Verify(app.Verifier), handler)
		}

		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(tb, err)
		counted := &countingListener{Listener: listener}
		served := make(chan error, 1)
		go func() { served <- f.Listener(counted) }()
		tb.Cleanup(func() {
			counted.open.Wait()
			if err := f.Shutdown(); err != nil {
				tb.Error("shutdown:", err)
			}
			<-served
		})
		return listener.Addr().String()
	}
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
