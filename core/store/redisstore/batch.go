package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/redis/rueidis"
)

// batcher is a client that sends the commands of concurrent callers together. Most of what a call
// costs the client, and much of what it costs the server, are system calls, and rueidis alone makes
// one for nearly every command.
//
// The first caller of a batch lets all goroutines run that are ready, and then sends what they have
// added. So a batch is as large as the process is busy: where nothing else is ready to run, a command is
// sent at once.
type batcher struct {
	rueidis.Client

	mu    sync.Mutex
	open  *batch // the one that commands can be added to; nil: none
	spare *batch // one that was not shared, to be used again
}

// batch is the commands that are sent together.
type batch struct {
	first    [2]rueidis.Completed // the commands of the first caller
	commands []rueidis.Completed
	answered chan struct{} // closed when the results are there; nil: there is one caller
	results  []rueidis.RedisResult
}

// batchMax is how many commands a batch has at most. Nobody gets an answer before all have theirs.
const batchMax = 32

// inBatches returns a batcher, or client itself where batches do harm. In a batch for several nodes of a
// cluster, all callers would wait for the slowest node. A client that follows redirections (it has a type of
// its own) sends a batch again as a whole, including what the server has carried out already.
func inBatches(client rueidis.Client) rueidis.Client {
	if client == nil || client.Mode() == rueidis.ClientModeCluster || fmt.Sprintf("%T", client) == "*rueidis.standalone" {
		return client
	}
	return &batcher{Client: client}
}

func (b *batcher) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	results := b.share(ctx, command)
	if results == nil {
		return b.Client.Do(ctx, command)
	}
	return results[0]
}

func (b *batcher) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	results := b.share(ctx, commands...)
	if results == nil {
		return b.Client.DoMulti(ctx, commands...)
	}
	return results
}

// share sends commands with those of other callers. It returns nil, and has sent nothing, if there are
// no others. The end of ctx ends only the wait for an answer, not the batch.
func (b *batcher) share(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	b.mu.Lock()
	if o := b.open; o != nil && len(o.commands)+len(commands) <= batchMax {
		if o.answered == nil {
			o.answered = make(chan struct{})
			o.commands = append(make([]rueidis.Completed, 0, batchMax), o.commands...)
		}
		first := len(o.commands)
		o.commands = append(o.commands, commands...)
		b.mu.Unlock()
		select {
		case <-o.answered:
			return o.results[first : first+len(commands)]
		case <-ctx.Done():
			failed := make([]rueidis.RedisResult, len(commands))
			for i := range failed {
				failed[i] = rueidis.NewErrorResult(ctx.Err())
			}
			return failed
		}
	}
	o := b.spare
	if b.spare = nil; o == nil {
		o = &batch{}
	}
	o.commands = append(o.first[:0], commands...)
	b.open = o
	b.mu.Unlock()
	runtime.Gosched()
	b.mu.Lock()
	if b.open == o {
		b.open = nil
	}
	alone := o.answered == nil
	if alone {
		b.spare = o
	}
	b.mu.Unlock()
	if alone {
		return nil
	}
	o.results = b.Client.DoMulti(context.WithoutCancel(ctx), o.commands...)
	close(o.answered)
	return o.results[:len(commands)]
}
