package core_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

func TestAllow(t *testing.T) {
	l := &fakeLimiter{}
	require.NoError(t, core.Allow(t.Context(), l, "alice"))
	require.Equal(t, []string{"alice"}, l.keys)
	require.Equal(t, t.Context(), l.ctx)

	for wait, after := range map[time.Duration]string{
		1: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90", math.MaxInt64: "9223372037",
	} {
		err := core.Allow(t.Context(), &fakeLimiter{wait: wait}, "alice")
		require.ErrorIs(t, err, core.CodeRateLimited)
		resp := core.RefusalResponse(t.Context(), err, nil)
		require.Equal(t, 429, resp.Status)
		require.Equal(t, after, resp.Get("Retry-After"))
		require.Equal(t, "rate_limited", resp.Get(core.RefusedHeader))
		require.Equal(t, "no-store", resp.Get("Cache-Control"))
		require.True(t, json.Valid(resp.Body))
	}
	// Whoever makes the refusal: it says when to come again.
	require.Equal(t, "1", core.RefusalResponse(t.Context(), core.NewRefusal(core.CodeRateLimited, nil), nil).Get("Retry-After"))

	err := core.Allow(t.Context(), &fakeLimiter{wait: time.Minute, err: errDown}, "alice")
	require.ErrorIs(t, err, core.CodeStoreUnavailable)
	require.ErrorIs(t, err, errDown)
	resp := core.RefusalResponse(t.Context(), err, nil)
	require.Equal(t, 503, resp.Status)
	require.Equal(t, "1", resp.Get("Retry-After"))
	require.NotContains(t, string(resp.Body), errDown.Error())
}

// What a handler behind a guard is refused is a failure, and is not kept: the next try is asked anew.
func TestAllowBehindAGuard(t *testing.T) {
	engine := core.MustNew(core.Config{})
	task := engine.MustTask(core.Policy{Name: "t"})
	l := &fakeLimiter{wait: time.Minute}
	do := func() error {
		_, err := core.Do(t.Context(), task, core.Call{Key: "k"}, func(ctx context.Context) (int, error) {
			return 7, core.Allow(ctx, l, "alice")
		})
		return err
	}
	require.ErrorIs(t, do(), core.CodeRateLimited)
	l.wait = 0
	require.NoError(t, do())
}
