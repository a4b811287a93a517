package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// TestWhatIsLeftBehindIsBounded: a server that does not answer must not cost a goroutine for
// each call that has ever been made.
func TestWhatIsLeftBehindIsBounded(t *testing.T) {
	c := &calls{born: time.Now()}
	c.restless.Store(c.now())
	answer := make(chan struct{})
	blocks := func(context.Context) rueidis.RedisResult {
		<-answer
		return rueidis.NewErrorResult(context.Canceled)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	call := func() error {
		c.flying.Add(1)
		return c.handOff(ctx, blocks).NonRedisError()
	}
	for range leftMax {
		require.ErrorIs(t, call(), context.Canceled)
	}
	require.ErrorIs(t, call(), errStuck)
	close(answer)
	c.wg.Wait()
	require.Zero(t, c.left.Load())
	require.Zero(t, c.flying.Load())
	require.NotErrorIs(t, call(), errStuck)
	c.wg.Wait()
}
