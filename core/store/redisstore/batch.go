package redisstore

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// batcher is a client that sends the commands of concurrent callers together. Most of what a call
// costs the client, and much of what it costs the server, are system calls, and rueidis alone makes
// one for nearly every command.
//
// The first caller of a batch lets all goroutines run that are ready, and then sends what they have
// added. So a batch is as large as the process is busy: where nothing else is ready to run, a command is
// sent at once. Where thousands are ready, the first caller's turn may come after all their deadlines. So a batch that is
// full is sent by the caller that has filled it, and one that is older than [batchAge] by a timer.
type batcher struct {
	rueidis.Client
	// turn, unless nil, is held while a batch is under way that waits for replicas. Such a batch holds up what is after it
	// on the connection. So all that comes meanwhile is the next batch, however full and old that one gets.
	turn *sync.Mutex

	mu    sync.Mutex
	open  *batch // the one that commands can be added to; nil: none
	spare *batch // one that was not shared, to be used again
	timer *time.Timer
}

// batch is the commands that are sent together.
type batch struct {
	first    [2]rueidis.Completed // the commands of the first caller
	commands []rueidis.Completed
	answered chan struct{} // closed when the results are there; nil: there is one caller
	results  []rueidis.RedisResult
}

// batchMax is how many commands a batch has at most: callers have one or two. Nobody gets an answer before all have theirs.
const batchMax = 32

// batchAge is how long a batch waits for the turn of its first caller at most.
const batchAge = time.Millisecond

// inBatches returns a batcher, or client itself where batches do harm. In a batch for several nodes of a
// cluster, all callers would wait for the slowest node. A client that follows redirections sends a batch again as
// a whole, including what the server has carried out already.
func inBatches(client rueidis.Client) rueidis.Client {
	if client == nil || client.Mode() == rueidis.ClientModeCluster || followsRedirections(client) {
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
	o, at, sends := b.join(commands)
	if at == 0 {
		if b.turn == nil {
			runtime.Gosched()
		} else {
			b.turn.Lock()
			defer b.turn.Unlock()
		}
		var alone bool
		if sends, alone = b.end(o); alone {
			return nil
		}
	}
	if sends {
		b.send(context.WithoutCancel(ctx), o)
		return o.results[at : at+len(commands)]
	}
	select {
	case <-o.answered:
		return o.results[at : at+len(commands)]
	case <-ctx.Done():
		failed := make([]rueidis.RedisResult, len(commands))
		for i := range failed {
			failed[i] = rueidis.NewErrorResult(ctx.Err())
		}
		return failed
	}
}

// join adds commands to the open batch, or opens one. It returns the batch, how many commands were there before, and
// whether the caller has filled it, and so has to send it.
func (b *batcher) join(commands []rueidis.Completed) (o *batch, at int, sends bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		o, b.spare = b.spare, nil
		if o == nil {
			o = &batch{}
		}
		o.commands = append(o.first[:0], commands...)
		b.open = o
		if b.turn != nil {
			o.answered = make(chan struct{})
			return o, 0, false
		}
		if b.timer == nil {
			b.timer = time.AfterFunc(batchAge, b.sendOld)
		} else {
			b.timer.Reset(batchAge)
		}
		return o, 0, false
	}
	o = b.open
	if o.answered == nil {
		o.answered = make(chan struct{})
		o.commands = append(make([]rueidis.Completed, 0, batchMax), o.commands...)
	}
	at = len(o.commands)
	o.commands = append(o.commands, commands...)
	if len(o.commands) > batchMax-2 && b.turn == nil {
		b.open, sends = nil, true
	}
	return o, at, sends
}

// end ends the time in which others can join o. It reports whether the first caller has to send it, because nobody else
// does, and whether nobody has joined.
func (b *batcher) end(o *batch) (sends, alone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == o {
		b.open, sends = nil, true
	}
	if alone = o.answered == nil; alone {
		b.spare = o
	}
	return sends, alone
}

// sendOld sends the open batch in the place of its first caller.
func (b *batcher) sendOld() {
	b.mu.Lock()
	o := b.open
	b.open = nil
	if o != nil && o.answered == nil {
		o.answered = make(chan struct{})
	}
	b.mu.Unlock()
	if o != nil {
		b.send(context.Background(), o)
	}
}

func (b *batcher) send(ctx context.Context, o *batch) {
	o.results = b.Client.DoMulti(ctx, o.commands...)
	close(o.answered)
}
