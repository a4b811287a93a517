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
	answer := make(blocked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	call := func() error { return c.handOff(ctx, command{script: answer}).err }
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

// blocked is a script that waits until it is closed.
type blocked chan struct{}

func (b blocked) Exec(context.Context, rueidis.Client, []string, []string) rueidis.RedisResult {
	<-b
	return rueidis.NewErrorResult(context.Canceled)
}
