package fiberidem_test

import (
	"bufio"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
)

func TestFieldsSetOutsideAreNotReplayed(t *testing.T) {
	cases := map[string]struct {
		outer  []fiber.Handler
		err    error
		status int
	}{
		"response":               {nil, nil, 201},
		"error":                  {nil, fiber.NewError(422, "no"), 422},
		"error rendered outside": {[]fiber.Handler{fiberidem.Finish()}, fiber.NewError(422, "no"), 422},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			app := newApp()
			for _, h := range tc.outer {
				app.Use(h)
			}
			requests := 0
			app.Use(func(c *fiber.Ctx) error {
				requests++
				c.Set("X-Ratelimit-Remaining", strconv.Itoa(9-requests))
				c.Set("Content-Encoding", "identity")
				c.Set("Link", "<outer>")
				return c.Next()
			})
			app.Post("/", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{Failed: core.FailedByStatus})), func(c *fiber.Ctx) error {
				c.Response().Header.Add("Link", "<inner>")
				if tc.err != nil {
					return tc.err
				}
				return c.Status(201).SendString("made")
			})
			s := serve(t, app)
			first, again := s.Post("/", ""), s.Post("/", "")
			require.Equal(t, tc.status, first.Status)
			require.True(t, again.Replayed())
			require.Equal(t, tc.status, again.Status)
			require.Equal(t, first.Body, again.Body)
			require.Equal(t, "8", first.Header.Get("X-Ratelimit-Remaining"))
			require.Equal(t, "7", again.Header.Get("X-Ratelimit-Remaining"))
			require.Equal(t, []string{"identity"}, again.Header["Content-Encoding"])
			require.Equal(t, []string{"<outer>", "<inner>"}, again.Header["Link"])
			require.Equal(t, first.Header["Content-Type"], again.Header["Content-Type"])
		})
	}
}

func TestContextWhileStreaming(t *testing.T) {
	app := newApp()
	app.Post("/stream", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), func(c *fiber.Ctx) error {
		ctx := c.UserContext()
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			time.Sleep(10 * time.Millisecond) // so that the run has ended
			_, _ = w.WriteString(strconv.FormatBool(ctx.Err() == nil))
		})
		return nil
	})
	ended := make(chan context.Context, 1)
	app.Post("/large", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{ResponseLimit: 10})), func(c *fiber.Ctx) error {
		ended <- c.UserContext()
		return c.SendString(strings.Repeat("x", 11))
	})
	s := serve(t, app)
	require.Equal(t, "true", s.Post("/stream", "").Body)
	require.Equal(t, 200, s.Post("/large", "").Status)
	require.True(t, errors.Is((<-ended).Err(), context.Canceled))
}

// A body that a middleware in front adds to an empty answer has the Content-Type that it has without a guard.
func TestABodyInFront(t *testing.T) {
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		err := c.Next()
		c.Response().SetBodyString("added")
		return err
	})
	handler := func(c *fiber.Ctx) error { c.Status(201); return nil }
	app.Post("/bare", handler)
	app.Post("/guarded", fiberidem.New(fibertest.NewEngine(t).MustGuard(core.Policy{})), handler)
	s := serve(t, app)
	bare, guarded := s.Post("/bare", ""), s.Post("/guarded", "")
	require.Equal(t, "added", guarded.Body)
	require.Equal(t, fibertest.WithoutDate(bare.Header), fibertest.WithoutDate(guarded.Header))
}
