package ginidem_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/internal/backend/nonces"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/signtest/guarded"
)

var enrolled = guarded.OnNetHTTP("gin", signedEngine)

func TestSignatures(t *testing.T) { signtest.Run(t, enrolled.Signatures(nonces.OnRedis)) }

func TestSignedAndGuarded(t *testing.T) { guarded.Run(t, enrolled) }

func BenchmarkVerify(b *testing.B) { guarded.Bench(b, enrolled) }

func signedEngine(app guarded.App) http.Handler {
	gin.SetMode(gin.TestMode)
	engine := gin.New()
	handler := func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		c.Data(200, "application/json", app.Handle(signtest.Seen{
			Context: c.Request.Context(), Verified: func() (sign.Verified, bool) { return ginidem.Verified(c) },
			Method: c.Request.Method, Header: c.GetHeader, Body: body, Err: err,
		}))
	}
	stack := guarded.Stack(app, ginidem.Verify, ginidem.New)
	if app.Pattern != "" {
		engine.POST(app.Pattern, append(stack, handler)...)
	} else {
		engine.Use(stack...)
		engine.NoRoute(handler) // gin has no other way to take every method
	}
	return engine
}
