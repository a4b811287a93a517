package fibertest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/race"
)

// What the guard adds to bare Fiber, with a client key and a JSON body of 200 bytes.
func (s suite[C]) testAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes allocations of its own")
	}
	created := func(c C) error {
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/orders/1")
		return c.Status(201).SendString(`{"order_id":1}`)
	}
	body := []byte(`{"item":"` + strings.Repeat("x", 189) + `"}`)
	bare := s.newApp()
	bare.Add("POST", "/orders/:id", created)
	guarded := s.newApp()
	guard := s.mounted(t, core.Policy{Key: core.Header(core.Required)})
	guarded.Add("POST", "/orders/:id", guard, created)

	var ctx fasthttp.RequestCtx
	n := 0
	key := make([]byte, 0, 32)
	perform := func(app App[C], fresh bool) func() {
		handler := app.Handler()
		return func() {
			ctx.Request.Reset()
			ctx.Response.Reset()
			ctx.ResetUserValues()
			ctx.Request.Header.SetMethod("POST")
			ctx.Request.SetRequestURI("/orders/7?x=1")
			ctx.Request.Header.SetContentType("application/json")
			if fresh {
				n++
			}
			key = strconv.AppendInt(append(key[:0], "key-"...), int64(n), 10)
			ctx.Request.Header.SetBytesV("Idempotency-Key", key)
			ctx.Request.SetBodyRaw(body)
			handler(&ctx)
		}
	}
	expect := func(replayed string) {
		t.Helper()
		require.Equal(t, 201, ctx.Response.StatusCode())
		require.Equal(t, `{"order_id":1}`, string(ctx.Response.Body()))
		require.Equal(t, replayed, string(ctx.Response.Header.Peek(core.ReplayedHeader)))
	}
	const rounds = 2000
	base := testing.AllocsPerRun(rounds, perform(bare, true))
	first := testing.AllocsPerRun(rounds, perform(guarded, true))
	expect("")
	replay := testing.AllocsPerRun(rounds, perform(guarded, false))
	expect("true")
	t.Logf("bare %v, first +%v, replay +%v", base, first-base, replay-base)
	require.LessOrEqual(t, first-base, 4.0)
	require.LessOrEqual(t, replay-base, 2.0)
}
