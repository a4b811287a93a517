package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

var errCluster = errors.New("redisstore: Config.WaitForReplicas needs a client of one server or of Sentinel: a cluster's, or one that " +
	"follows redirections, may send a write and its WAIT to two servers")

// replicated is a client that sends a WAIT after commands, on the same connection.
type replicated struct {
	Client
	n    int
	wait []string
}

func (r *replicated) Do(ctx context.Context, commands []Command) {
	// rueidis sends the WAIT that it knows on another connection, for that blocks, and does not notice a frozen server there. An
	// arbitrary one stays in its place.
	all := append(slices.Clip(commands), Command{Args: r.wait})
	r.Client.Do(ctx, all)
	last := &all[len(commands)]
	err := last.Err
	if err == nil && last.Number < int64(r.n) {
		err = fmt.Errorf("%d of %d have acknowledged it in time", last.Number, r.n)
	}
	for i := range commands {
		reply := all[i].Reply
		if err != nil && (reply.Err == nil || reply.Err == ErrNil) {
			reply.unconfirmed = fmt.Errorf("waiting for replicas to have the write: %w", err)
		}
		commands[i].Reply = reply
	}
}
