package redisstore

import (
	"context"
	"strings"
	"sync/atomic"
	"time"
)

// natives says which commands the server has that do what takes a script else.
type natives struct {
	claim   trial // SET with NX and GET: Redis 7.0
	set     trial // SET with IFEQ: Valkey 8.1, Redis 8.4
	delifeq trial // Valkey 9
	delex   trial // Redis 8.4
}

func (n *natives) all() []*trial { return []*trial{&n.claim, &n.set, &n.delifeq, &n.delex} }

// trial says whether a command is worth trying.
type trial struct {
	works atomic.Bool  // a server has taken it, or is of a version that does
	next  atomic.Int64 // else when one call tries it, as a time.Duration since epoch
}

// trialPause is how long a command is left alone that a server has refused. Then the server may be another one.
const trialPause = time.Minute

var epoch = time.Now()

// allowed reports whether the caller may send the command.
func (t *trial) allowed() bool {
	if t.works.Load() {
		return true
	}
	next, now := t.next.Load(), time.Since(epoch)
	return int64(now) >= next && t.next.CompareAndSwap(next, int64(now+trialPause))
}

// taken says that a server takes the command.
func (t *trial) taken() {
	if !t.works.Load() {
		t.works.Store(true)
	}
}

// refused says that a server does not take the command.
func (t *trial) refused() {
	t.next.Store(int64(time.Since(epoch) + trialPause))
	t.works.Store(false)
}

// learn notes what the server does according to its INFO.
func (n *natives) learn(info string) {
	valkey, redis := field(info, "valkey_version"), field(info, "redis_version")
	switch {
	case valkey != "":
		if atLeast(valkey, 8, 1) {
			n.set.taken()
		}
		if atLeast(valkey, 9, 0) {
			n.delifeq.taken()
		}
	case atLeast(redis, 8, 4):
		n.set.taken()
		n.delex.taken()
	}
}

// settle ends a run, or does whatever else an owner may: by a command that compares, if there is one and the record is known, and else
// by the script.
func (f *flight) settle(ctx context.Context) answer {
	n, do := &f.calls.natives, &f.command
	if do.known == "" {
		return f.run(ctx)
	}
	switch {
	case do.script != releaseScript:
		if n.set.allowed() {
			return f.compare(ctx, &n.set, "SET", do.key, do.args[2], "IFEQ", do.known, "PX", do.args[1])
		}
	case n.delifeq.allowed():
		return f.compare(ctx, &n.delifeq, "DELIFEQ", do.key, do.known)
	case n.delex.allowed():
		return f.compare(ctx, &n.delex, "DELEX", do.key, "IFEQ", do.known)
	}
	return f.run(ctx)
}

// compare runs a command that compares, and the script if the command has not acted and the script might. Any other error
// may have come after the server acted: the script would not find the record, and call it lost.
func (f *flight) compare(ctx context.Context, t *trial, words ...string) answer {
	sent := &f.commands[0]
	*sent = Command{Args: append(f.words[:0], words...), Key: 1}
	f.do(ctx, 1)
	err := sent.Err
	switch {
	case err == nil:
		t.taken()
		if sent.Text != "" || sent.Number != 0 { // OK, or how many were deleted
			return answer{number: 1, err: sent.unconfirmed}
		}
	case err == ErrNil:
		t.taken()
	case isUnknownCommand(err):
		t.refused()
	case !isReadOnly(err):
		return answer{err: err}
	}
	if err := f.ctx.Err(); err != nil {
		return answer{err: err} // the caller has gone
	}
	return f.run(ctx)
}

// isUnknownCommand reports whether a server does not know a command or its option, or the user may not run it.
func isUnknownCommand(err error) bool {
	if !isServerError(err) {
		return false
	}
	text := err.Error()
	return isUnknown(err) || strings.HasPrefix(text, "NOPERM") || strings.Contains(text, "unknown command") ||
		strings.Contains(text, "unsupported command")
}
