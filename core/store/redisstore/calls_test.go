package redisstore

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
)

// TestWhatIsLeftBehindIsBounded: a server that does not answer must not cost a goroutine for
// each call that has ever been made.
func TestWhatIsLeftBehindIsBounded(t *testing.T) {
	answer := make(blocked)
	c := &calls{client: answer}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	call := func() error { return c.handOff(ctx, command{script: renewScript}, false).err }
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

// TestALateClaimThatWasSentTwice: it is in its own way, and is released.
func TestALateClaimThatWasSentTwice(t *testing.T) {
	for _, byStore := range []bool{false, true} {
		for _, together := range []bool{true, false} {
			client := &twice{byStore: byStore, sent: make(chan struct{}), goOn: make(chan struct{})}
			c := &calls{client: client}
			if together {
				c.client = inBatches(client, c)
			}
			c.natives.claim.taken()
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-client.sent; leave() }()
			do := acquireCommand("k", store.Claim{Owner: store.NewOwner(), Lease: time.Hour, Retention: time.Hour}, time.Now())
			_, _, err := c.call(ctx, do)
			require.ErrorIs(t, err, context.Canceled)
			client.goOn <- struct{}{}
			c.wg.Wait()
			require.Equal(t, []string{"EVALSHA", *releaseScript.digest.Load(), "1", "k", do.owner}, client.last)
			require.Zero(t, c.left.Load())
		}
	}
}

// twice is a client that sends a claim twice when it is told to go on, or fails the first so that the store sends the second.
type twice struct {
	blocked
	byStore    bool
	failed     bool
	sent, goOn chan struct{}
	last       []string
}

func (c *twice) Do(_ context.Context, commands []Command) {
	c.last = slices.Clone(commands[0].Args)
	if c.last[0] != "SET" {
		return
	}
	if c.byStore && !c.failed {
		c.failed = true
		commands[0].Err = context.Canceled // another caller's context has ended
		return
	}
	c.sent <- struct{}{}
	<-c.goOn
	commands[0].Reply = Reply{Text: c.last[2], Repeated: !c.byStore}
	commands[1].Reply = Reply{Number: 7_200_000, Repeated: !c.byStore}
}

// TestRepeatedCommands: that a command may have been carried out twice is known, in batches and without.
func TestRepeatedCommands(t *testing.T) {
	for _, together := range []bool{true, false} {
		c := &calls{client: again{}}
		if together {
			c.client = inBatches(again{}, c)
		}
		_, repeated, err := c.call(t.Context(), command{script: renewScript, key: "k"})
		require.NoError(t, err)
		require.True(t, repeated)
		c.wg.Wait()
	}
}

// again is a client that says of each command that it may have sent it twice.
type again struct{ blocked }

func (again) Do(_ context.Context, commands []Command) { commands[0].Reply = Reply{Repeated: true} }

// blocked is a client that waits until it is closed.
type blocked chan struct{}

func (b blocked) Do(_ context.Context, commands []Command) {
	<-b
	commands[0].Err = context.Canceled
}

func (blocked) Nodes(context.Context) (map[string]Client, error)              { return nil, nil }
func (blocked) OneServer() bool                                               { return true }
func (blocked) Subscribe(context.Context, string, func(), func(string)) error { return nil }
