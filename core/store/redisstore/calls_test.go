package redisstore

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// TestWhatIsLeftBehindIsBounded: a server that does not answer must not cost a goroutine for
// each call that has ever been made.
func TestWhatIsLeftBehindIsBounded(t *testing.T) {
	c := &calls{}
	answer := make(chan struct{})
	blocks := func(context.Context) rueidis.RedisResult {
		<-answer
		return rueidis.NewErrorResult(context.Canceled)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	call := func() error { return c.handOff(ctx, blocks, nil).NonRedisError() }
	for range leftMax {
		require.ErrorIs(t, call(), context.Canceled)
	}
	require.ErrorIs(t, call(), errStuck)
	close(answer)
	c.wg.Wait()
	require.Zero(t, c.left.Load())
	require.NotErrorIs(t, call(), errStuck)
	c.wg.Wait()
}
