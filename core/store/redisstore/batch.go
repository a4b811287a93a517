package redisstore

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// batcher is a client that sends the commands of concurrent callers together. Most of what a call
// costs the client, and much of what it costs the server, are system calls, and rueidis alone makes
// one for nearly every command; go-redis takes a connection for each caller.
//
// The first caller of a batch lets all goroutines run that are ready, and then sends what they have
// added. So a batch is as large as the process is busy: where nothing else is ready to run, a command is
// sent at once. Where thousands are ready, the first caller's turn may come after all their deadlines. So a batch that is
// full is sent by the caller that has filled it, and one that is older than [batchAge] by a timer.
type batcher struct {
	Client
	// turn, unless nil, is held while a batch is under way that waits for replicas. Such a batch holds up what is after it
	// on the connection. So all that comes meanwhile is the next batch, however full and old that one gets.
	turn *sync.Mutex

	mu    sync.Mutex
	open  *batch // the one that commands can be added to; nil: none
	timer *time.Timer
}

// batch is the commands that are sent together. Batches are pooled, except those from which a caller has gone.
type batch struct {
	commands []Command
	answered chan struct{} // closed when the replies are there; nil: there is one caller
	callers  atomic.Int32
}

var batches = sync.Pool{New: func() any { return &batch{commands: make([]Command, 0, batchMax)} }}

// leave is called by each caller that needs the batch no more.
func (o *batch) leave() {
	if o.callers.Add(-1) == 0 {
		clear(o.commands)
		o.commands, o.answered = o.commands[:0], nil
		batches.Put(o)
	}
}

// batchMax is how many commands a batch has at most: callers have one or two. Nobody gets an answer before all have theirs.
const batchMax = 32

// batchAge is how long a batch waits for the turn of its first caller at most.
const batchAge = time.Millisecond

// inBatches returns a batcher, or client itself where batches do harm. In a batch for several nodes of a
// cluster, all callers would wait for the slowest node. A client that follows redirections sends a batch again as
// a whole, including what the server has carried out already.
func inBatches(client Client) Client {
	if !client.OneServer() {
		return client
	}
	return &batcher{Client: client}
}

// Do sends commands with those of other callers, if there are any. The end of ctx ends only the wait for an answer, not the batch.
func (b *batcher) Do(ctx context.Context, commands []Command) {
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
			o.leave()
			b.Client.Do(ctx, commands)
			return
		}
	}
	if sends {
		b.send(context.WithoutCancel(ctx), o)
	} else {
		select {
		case <-o.answered:
		case <-ctx.Done():
			for i := range commands {
				commands[i].Reply = Reply{Err: ctx.Err()}
			}
			return
		}
	}
	for i := range commands {
		commands[i].Reply = o.commands[at+i].Reply
	}
	o.leave()
}

// join adds commands to the open batch, or opens one. It returns the batch, how many commands were there before, and
// whether the caller has filled it, and so has to send it.
func (b *batcher) join(commands []Command) (o *batch, at int, sends bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		o = batches.Get().(*batch)
		o.callers.Store(1)
		o.commands = append(o.commands, commands...)
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
	}
	o.callers.Add(1)
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
	return sends, o.answered == nil
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
	b.Client.Do(ctx, o.commands)
	close(o.answered)
}
