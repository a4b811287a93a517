package redisstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/idem-go/idem/core/store"
)

// answer is a server's answer to a command.
type answer struct {
	number int64  // of a script, or the attempt of a claim that was made
	record string // the record that is in the way of a claim; or what it has told of the operation of a claim that was made: see granted
	left   int64  // its time to live, in ms; negative: for ever
	err    error
}

// answered reports whether the server has answered, with an error or without.
func (a answer) answered() bool {
	_, refused := rueidis.IsRedisErr(a.err)
	return a.err == nil || refused
}

// claim makes a claim. SET claims a free key, or returns the record that is there (from Redis 7.0
// on). PTTL, in the same round trip, returns how long that record is kept.
//
// The two commands are not one step. That does not matter for a finished record, which never
// changes. But it may expire between them, and another one be made, whose time to live then
// mostly exceeds the retention of the first. In that case, and for every unfinished record, the
// script decides.
func (f *flight) claim(ctx context.Context) answer {
	c, do := f.calls, &f.command
	if c.scriptsOnly.Load() {
		return f.run(ctx)
	}
	// Arbitrary commands count as writes: the client sends neither twice, nor to a replica.
	b := c.client.B()
	f.pair[0] = b.Arbitrary("SET").Keys(do.key).Args(do.args[0], "NX", "GET", "PX", do.args[1]).Build()
	f.pair[1] = b.Arbitrary("PTTL").Keys(do.key).Build()
	results := c.client.DoMulti(ctx, f.pair[:]...)
	set, unconfirmed := confirmed(results[0])
	pttl, _ := confirmed(results[1])
	record, err := set.ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return answer{number: 1, err: unconfirmed}
	case err == nil:
		if left, err := pttl.AsInt64(); err == nil && strings.HasPrefix(record, "D") && left >= 0 && left <= retention(record) {
			return answer{record: record, left: left}
		}
	case isUnknown(err):
		c.scriptsOnly.Store(true)
	case !isReadOnly(err):
		return answer{err: err}
	}
	if err := f.ctx.Err(); err != nil {
		return answer{err: err} // the caller has gone
	}
	return f.run(ctx)
}

// run runs the script.
func (f *flight) run(ctx context.Context) answer {
	do := &f.command
	result, unconfirmed := confirmed(do.script.Exec(ctx, f.calls.client, f.keys[:], do.args[:do.n]))
	message, err := result.ToMessage()
	if err != nil {
		return answer{err: err}
	}
	if message.IsInt64() {
		number, err := message.AsInt64()
		if number != 0 && err == nil {
			err = unconfirmed
		}
		return answer{number: number, err: err}
	}
	parts, err := message.ToArray()
	if err != nil || len(parts) != 2 {
		return answer{err: errNoRecord}
	}
	if parts[0].IsInt64() { // the claim was made
		number, err1 := parts[0].AsInt64()
		told, err2 := parts[1].ToString()
		if err1 != nil || err2 != nil || len(told) <= len(store.ID{}) {
			return answer{err: errNoRecord}
		}
		return answer{number: number, record: told, err: unconfirmed}
	}
	record, err1 := parts[0].ToString()
	left, err2 := parts[1].AsInt64()
	if err1 != nil || err2 != nil {
		return answer{err: errNoRecord}
	}
	return answer{record: record, left: left}
}

// retention returns the retention in a record, in ms; zero if there is none, and for a record that outlives its result: whether it
// has one still, only the script tells in one step.
func retention(record string) int64 {
	_, rest, _ := strings.Cut(record, ";")
	span, _, _ := strings.Cut(rest, ";")
	ms, _ := strconv.ParseUint(span, 10, 63) // which takes no +
	return int64(ms)
}

// isUnknown reports whether a server does not support SET with NX and GET together.
func isUnknown(err error) bool {
	_, is := rueidis.IsRedisErr(err)
	return is && strings.Contains(err.Error(), "syntax error")
}

// isReadOnly reports whether a server has refused to write, but may still read: it is out of
// memory, a replica, can't save, or has too few replicas.
func isReadOnly(err error) bool {
	_, is := rueidis.IsRedisErr(err)
	if !is {
		return false
	}
	switch code, _, _ := strings.Cut(err.Error(), " "); code {
	case "OOM", "READONLY", "MISCONF", "NOREPLICAS":
		return true
	}
	return false
}
