package echoidem_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/echoidem"
	"github.com/idem-go/idem/internal/backend/nonces"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/signtest/guarded"
)

var enrolled = guarded.OnNetHTTP("echo", signedEcho)

func TestSignatures(t *testing.T) { signtest.Run(t, enrolled.Signatures(nonces.OnRedis)) }

func TestSignedAndGuarded(t *testing.T) { guarded.Run(t, enrolled) }

func BenchmarkVerify(b *testing.B) { guarded.Bench(b, enrolled) }

func signedEcho(app guarded.App) http.Handler {
	e := echo.New()
	handler := func(c echo.Context) error {
		r := c.Request()
		body, err := io.ReadAll(r.Body)
		return c.JSONBlob(200, app.Handle(signtest.Seen{
			Context: r.Context(), Verified: func() (sign.Verified, bool) { return echoidem.Verified(c) },
			Method: r.Method, Header: r.Header.Get, Body: body, Err: err,
		}))
	}
	stack := guarded.Stack(app, echoidem.Verify, echoidem.New)
	if app.Pattern != "" {
		e.POST(app.Pattern, handler, stack...)
	} else {
		e.Use(stack...)
		e.RouteNotFound("/*", handler) // echo has no other way to take every method
	}
	return e
}
