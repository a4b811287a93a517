package fiberidem_test

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/backend/nonces"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/signtest/guarded"
)

func TestSignatures(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		h := enrolled(config).Signatures(nonces.OnRedis)
		h.OwnDate = true
		signtest.Run(t, h)
	})
}

func TestSignedAndGuarded(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) { guarded.Run(t, enrolled(config)) })
}

func BenchmarkVerify(b *testing.B) { guarded.Bench(b, enrolled(fiber.Config{})) }

// modes are the settings of Fiber that change what it makes of a request.
var modes = map[string]fiber.Config{
	"plain":         {},
	"streams":       {StreamRequestBody: true},
	"names as sent": {DisableHeaderNormalizing: true},
	"immutable":     {Immutable: true},
}

func inEachMode(t *testing.T, test func(t *testing.T, config fiber.Config)) {
	for name, config := range modes {
		t.Run(name, func(t *testing.T) { test(t, config) })
	}
}

// enrolled is the harness for Fiber with these settings.
func enrolled(config fiber.Config) guarded.Harness {
	config.ReadBufferSize = 64 << 10
	config.RequestMethods = append([]string{"PROPFIND"}, fiber.DefaultMethods...)
	config.DisablePreParseMultipartForm = true // what was signed are the form's bytes
	return guarded.Harness{
		Name:         "fiber",
		ClosesUnread: config.StreamRequestBody,
		Start: func(tb testing.TB, app guarded.App) string {
			return listen(tb, signedApp(config, app))
		},
		Direct: func(tb testing.TB, app guarded.App, message []byte) func() {
			c := new(fasthttp.RequestCtx)
			require.NoError(tb, c.Request.Read(bufio.NewReader(bytes.NewReader(message))))
			handler := signedApp(config, app).Handler()
			return func() { handler(c) }
		},
	}
}

func signedApp(config fiber.Config, app guarded.App) *fiber.App {
	f := newApp(config)
	handler := func(c *fiber.Ctx) error {
		c.Type("json")
		return c.Send(app.Handle(signtest.Seen{
			Context: c.UserContext(), Verified: func() (sign.Verified, bool) { return fiberidem.Verified(c) },
			Method: c.Method(), Header: func(name string) string { return get(c, name) }, Body: c.BodyRaw(),
		}))
	}
	if len(app.Fields) > 0 {
		f.Use(func(c *fiber.Ctx) error {
			for _, field := range app.Fields {
				c.Set(field.Name, field.Value)
			}
			return c.Next()
		})
	}
	stack := append(guarded.Stack(app, fiberidem.Verify, fiberidem.New), handler)
	if app.Pattern != "" {
		f.Post(app.Pattern, stack...)
		return f
	}
	for _, h := range stack {
		f.Use(h)
	}
	return f
}

// get is c.Get for a field whose name was sent in any case, also if Fiber leaves names as they are sent.
func get(c *fiber.Ctx, name string) (value string) {
	if !c.App().Config().DisableHeaderNormalizing {
		return c.Get(name)
	}
	c.Request().Header.VisitAll(func(k, v []byte) {
		if value == "" && strings.EqualFold(string(k), name) {
			value = string(v)
		}
	})
	return value
}
