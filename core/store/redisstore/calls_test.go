package redisstore

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatIsLeftBehindIsBounded: a server that does not answer must not cost a goroutine for
// each call that has ever been made.
func TestWhatIsLeftBehindIsBounded(t *testing.T) {
	answer := make(blocked)
	c := &calls{client: answer}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	call := func() error { return c.handOff(ctx, command{script: renewScript}).err }
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

// blocked is a client that waits until it is closed.
type blocked chan struct{}

func (b blocked) Do(_ context.Context, commands []Command) {
	<-b
	commands[0].Err = context.Canceled
}

func (blocked) Nodes(context.Context) (map[string]Client, error)              { return nil, nil }
func (blocked) OneServer() bool                                               { return true }
func (blocked) Subscribe(context.Context, string, func(), func(string)) error { return nil }
