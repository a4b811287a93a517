package redisstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// answer is what the server has said to a command.
type answer struct {
	number int64  // of a script, or the attempt of a claim that is made
	record string // what stands in the way of a claim
	left   int64  // how long that still lives, in ms; negative: for ever
	err    error
}

// answered reports whether the server has said anything at all.
func (a answer) answered() bool {
	_, refused := rueidis.IsRedisErr(a.err)
	return a.err == nil || refused
}

// claim makes a claim. A key that is free takes one SET, which also says what stands under a key
// that isn't: from Redis 7.0 on. What remains of a record is asked for in the same round trip.
//
// The two commands are not one step. A finished record can bear that, for it never changes. It
// may expire between them, and another be made: then what is said to remain is mostly more than
// it ever had. That, and every record that is not finished, is the script's.
func (f *flight) claim(ctx context.Context) answer {
	c, do := f.calls, &f.command
	if c.scriptsOnly.Load() {
		return f.run(ctx)
	}
	// Both are sent as commands that write: none is sent again by the client, or to a replica.
	b := c.client.B()
	f.pair[0] = b.Arbitrary("SET").Keys(do.key).Args(do.args[0], "NX", "GET", "PX", do.args[1]).Build()
	f.pair[1] = b.Arbitrary("PTTL").Keys(do.key).Build()
	results := c.client.DoMulti(ctx, f.pair[:]...)
	record, err := results[0].ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return answer{number: 1}
	case err == nil:
		if left, err := results[1].AsInt64(); err == nil && strings.HasPrefix(record, "D") && left >= 0 && left <= retention(record) {
			return answer{record: record, left: left}
		}
	case isUnknown(err):
		c.scriptsOnly.Store(true)
	case !isReadOnly(err):
		return answer{err: err}
	}
	if err := f.undated.Err(); err != nil {
		return answer{err: err} // nobody waits for it any more
	}
	return f.run(ctx)
}

// run runs the script.
func (f *flight) run(ctx context.Context) answer {
	do := &f.command
	message, err := do.script.Exec(ctx, f.calls.client, f.keys[:], do.args[:do.n]).ToMessage()
	if err != nil {
		return answer{err: err}
	}
	if message.IsInt64() {
		number, err := message.AsInt64()
		return answer{number: number, err: err}
	}
	parts, err := message.ToArray()
	if err != nil || len(parts) != 2 {
		return answer{err: errNoRecord}
	}
	record, err1 := parts[0].ToString()
	left, err2 := parts[1].AsInt64()
	if err1 != nil || err2 != nil {
		return answer{err: errNoRecord}
	}
	return answer{record: record, left: left}
}

// retention returns the span in a record, in ms; zero if there is none.
func retention(record string) int64 {
	_, rest, _ := strings.Cut(record, ";")
	span, _, _ := strings.Cut(rest, ";")
	ms, _ := strconv.ParseInt(span, 10, 64)
	return ms
}

// isUnknown reports whether a server does not know SET with NX and GET together.
func isUnknown(err error) bool {
	_, is := rueidis.IsRedisErr(err)
	return is && strings.Contains(err.Error(), "syntax error")
}

// isReadOnly reports whether a server has refused to write, and may tell what stands all the
// same: it is out of memory, or a replica, can't save, or has too few replicas.
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
