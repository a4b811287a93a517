package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// batcher is a client that sends the commands of concurrent callers together. Most of what a call
// costs the client, and much of what it costs the server, are system calls, and rueidis alone makes
// one for nearly every command; go-redis takes a connection for each caller.
//
// The goroutine that leads a batch lets all others run that are ready, and then sends what they have added. So a batch is as large as the
// process is busy: where nothing else is ready to run, a command is sent at once. Where thousands are ready, the leader's turn may come
// after all their deadlines. So a batch that is full is sent by a goroutine that the last caller starts, and one that is older than
// [batchAge] by a timer. No caller sends: the client may wait, whatever a caller's context says.
type batcher struct {
	Client
	calls *calls
	// turn, unless nil, is held while a batch is under way that waits for replicas. Such a batch holds up what is after it
	// on the connection. So all that comes meanwhile is the next batch, however full and old that one gets.
	turn *sync.Mutex

	mu    sync.Mutex
	open  *batch // the one that commands can be added to; nil: none
	free  []*batch
	timer *time.Timer
}

// batch is the commands that are sent together.
type batch struct {
	batcher  *batcher
	commands []Command
	flights  []*flight // whose they are, in their order
	left     bool      // a caller has gone
	lead     func()    // the method leads, allocated once
}

// freeMax is how many batches that are done a batcher keeps, to be used again.
const freeMax = 8

// batchMax is how many commands a batch has at most: callers have one or two. Nobody gets an answer before all have theirs.
const batchMax = 32

// batchAge is how long a batch waits for the turn of its leader at most.
const batchAge = time.Millisecond

// inBatches returns a batcher, or client itself where batches do harm. In a batch for several nodes of a
// cluster, all callers would wait for the slowest node. A client that follows redirections sends a batch again as
// a whole, including what the server has carried out already.
func inBatches(client Client, c *calls) Client {
	if !client.OneServer() {
		return client
	}
	return &batcher{Client: client, calls: c}
}

// Do sends commands with those of other callers, if there are any. The end of ctx ends only the wait for an answer, not the batch.
func (b *batcher) Do(ctx context.Context, commands []Command) {
	f := newFlight()
	f.ctx, f.sent = withoutDeadline{ctx}, slices.Clone(commands) // which the batch may still need when the caller has gone
	b.add(f)
	select {
	case <-f.replies:
	case <-ctx.Done():
		if b.leave(f) {
			for i := range commands {
				commands[i].Reply = Reply{Err: ctx.Err()}
			}
			return
		}
		<-f.replies
	}
	for i := range commands {
		commands[i].Reply = f.sent[i].Reply
	}
}

// add adds a flight's commands to the open batch, or opens one. The flight's replies are there when its channel says so.
func (b *batcher) add(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.open
	if o == nil {
		o = b.empty()
		b.open = o
		b.calls.wg.Add(2) // of a call that is under way
		go o.lead()
		switch {
		case b.turn != nil:
		case b.timer == nil:
			b.timer = time.AfterFunc(batchAge, b.sendOld)
		default:
			b.timer.Reset(batchAge)
		}
	}
	f.batch = o
	o.flights = append(o.flights, f)
	o.commands = append(o.commands, f.sent...)
	if len(o.commands) > batchMax-2 && b.turn == nil {
		b.open = nil
		go b.send(o)
	}
}

// empty returns a batch without commands.
func (b *batcher) empty() *batch {
	if last := len(b.free) - 1; last >= 0 {
		o := b.free[last]
		b.free = b.free[:last]
		return o
	}
	o := &batch{batcher: b, commands: make([]Command, 0, batchMax)}
	o.lead = o.leads
	return o
}

// leave ends a caller's wait. It reports false if the replies are there.
func (b *batcher) leave(f *flight) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.batch != nil && !f.batch.left {
		f.batch.left = true
		b.calls.left.Add(1)
	}
	return f.batch != nil
}

// leads sends o when all goroutines that are ready have run, unless somebody has done so.
func (o *batch) leads() {
	b := o.batcher
	defer b.calls.wg.Done()
	if b.turn == nil {
		runtime.Gosched()
	} else {
		b.turn.Lock()
		defer b.turn.Unlock()
	}
	b.mu.Lock()
	sends := b.open == o
	if sends {
		b.open = nil
	}
	b.mu.Unlock()
	if sends {
		b.send(o)
	}
}

// sendOld sends the open batch in the place of its leader.
func (b *batcher) sendOld() {
	b.mu.Lock()
	o := b.open
	b.open = nil
	b.mu.Unlock()
	if o != nil {
		b.send(o)
	}
}

// send sends o and gives each flight its replies.
func (b *batcher) send(o *batch) {
	defer b.calls.wg.Done()
	ctx := o.flights[0].context()
	if len(o.flights) > 1 {
		ctx = context.WithoutCancel(ctx)
	}
	b.Client.Do(ctx, o.commands)
	b.mu.Lock()
	for _, f := range o.flights {
		f.batch = nil
	}
	if o.left {
		b.calls.left.Add(-1)
	}
	b.mu.Unlock()
	at := 0
	for _, f := range o.flights {
		for i := range f.sent {
			f.sent[i].Reply = o.commands[at+i].Reply
		}
		at += len(f.sent)
		f.replies <- struct{}{} // the flight is its caller's now
	}
	clear(o.commands)
	clear(o.flights)
	o.commands, o.flights, o.left = o.commands[:0], o.flights[:0], false
	b.mu.Lock()
	if len(b.free) < freeMax {
		b.free = append(b.free, o)
	}
	b.mu.Unlock()
}
