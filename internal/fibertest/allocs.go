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

// OrderJSON is what the handlers of [Allocations] answer with 201.
const OrderJSON = `{"order_id":1}`

// Allocations expects a guard by a required client key to add no more than 4 allocations to a first request to /orders/7, and 2 to
// a replay.
func Allocations(t *testing.T, bare, guarded fasthttp.RequestHandler) {
	race.Skip(t, "the race detector makes allocations of its own")
	body := []byte(`{"item":"` + strings.Repeat("x", 189) + `"}`)
	var ctx fasthttp.RequestCtx
	n := 0
	key := make([]byte, 0, 32)
	measure := func(handler fasthttp.RequestHandler, fresh bool, replayed string) float64 {
		allocs := testing.AllocsPerRun(2000, func() {
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
		})
		require.Equal(t, 201, ctx.Response.StatusCode())
		require.Equal(t, OrderJSON, string(ctx.Response.Body()))
		require.Equal(t, replayed, string(ctx.Response.Header.Peek(core.ReplayedHeader)))
		return allocs
	}
	base, first, replay := measure(bare, true, ""), measure(guarded, true, ""), measure(guarded, false, "true")
	t.Logf("bare %v, first +%v, replay +%v", base, first-base, replay-base)
	require.LessOrEqual(t, first-base, 4.0)
	require.LessOrEqual(t, replay-base, 2.0)
}
