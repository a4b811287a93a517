package redisstore

import (
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

// first prepares the first round trip, and returns its commands: those that do what takes a script else, if the server may have
// them and, where they compare, the record is known; else the script. Nil: its digest is not known.
func (f *flight) first() []Command {
	n, do := &f.calls.natives, &f.command
	switch {
	case do.script == nil:
		f.commands[0] = Command{Args: append(f.words[:0], "GET", do.key), Key: 1}
		return f.commands[:1]
	case do.owner != "":
		if n.claim.allowed() {
			f.native = &n.claim
			words := append(f.words[:0], "SET", do.key, do.args[0], "NX", "GET", "PX", do.args[1], "PTTL", do.key)
			f.commands = [2]Command{{Args: words[:7:7], Key: 1}, {Args: words[7:], Key: 1}}
			return f.commands[:2]
		}
	case do.known == "":
	case do.script != releaseScript:
		if n.set.allowed() {
			return f.compare(&n.set, "SET", do.key, do.args[2], "IFEQ", do.known, "PX", do.args[1])
		}
	case n.delifeq.allowed():
		return f.compare(&n.delifeq, "DELIFEQ", do.key, do.known)
	case n.delex.allowed():
		return f.compare(&n.delex, "DELEX", do.key, "IFEQ", do.known)
	}
	if do.script.digest.Load() == nil {
		return nil
	}
	f.prepare(do.script, do.args[:do.n])
	return f.commands[:1]
}

func (f *flight) compare(t *trial, words ...string) []Command {
	f.native = t
	f.commands[0] = Command{Args: append(f.words[:0], words...), Key: 1}
	return f.commands[:1]
}

// outcome says what the first round trip came to, and whether that is final. Otherwise the script has to run: the server does not have
// it, or the command has not acted and the script might. Any other error may have come after the server acted: the script would not find
// the record, and call it lost.
func (f *flight) outcome() (a answer, final bool) {
	sent := &f.commands[0]
	switch {
	case f.command.script == nil:
		a = answer{record: sent.Text, err: sent.Err}
		if a.err == ErrNil {
			a.err = nil
		}
		return a, true
	case f.native == nil:
		if isServerError(sent.Err) && strings.HasPrefix(sent.Err.Error(), "NOSCRIPT") {
			return answer{}, false
		}
		return scriptAnswer(&sent.Reply), true
	case f.command.owner != "":
		a, final = f.claimed()
	default:
		a, final = f.compared()
	}
	if err := f.ctx.Err(); !final && err != nil {
		return answer{err: err}, true // the caller has gone
	}
	return a, final
}

func (f *flight) compared() (a answer, final bool) {
	sent, err := &f.commands[0], f.commands[0].Err
	switch {
	case err == nil:
		f.native.taken()
		if sent.Text != "" || sent.Number != 0 { // OK, or how many were deleted
			return answer{number: 1, err: sent.unconfirmed}, true
		}
	case err == ErrNil:
		f.native.taken()
	case isUnknownCommand(err):
		f.native.refused()
	case !isReadOnly(err):
		return answer{err: err}, true
	}
	return answer{}, false
}

// isUnknownCommand reports whether a server does not know a command or its option, or the user may not run it.
func isUnknownCommand(err error) bool {
	if !isServerError(err) {
		return false
	}
	text := err.Error()
	return isUnknown(err) || isForbidden(err) || strings.Contains(text, "unknown command") ||
		strings.Contains(text, "unsupported command")
}

// isForbidden reports whether the user may not run a command.
func isForbidden(err error) bool {
	return isServerError(err) && strings.HasPrefix(err.Error(), "NOPERM")
}
