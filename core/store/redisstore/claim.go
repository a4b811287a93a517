package redisstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core/store"
)

// answer is a server's answer to a command.
type answer struct {
	number int64  // of a script, or the attempt of a claim that was made
	record string // the record that is in the way of a claim; or what it has told of the operation of a claim that was made: see granted
	left   int64  // its time to live, in ms; negative: for ever
	err    error

	repeated bool // the client may have sent the command twice
}

// answered reports whether the server has answered, with an error or without.
func (a answer) answered() bool { return a.err == nil || isServerError(a.err) }

// claim makes a claim. SET claims a free key, or returns the record that is there (from Redis 7.0
// on). PTTL, in the same round trip, returns how long that record is kept.
//
// The two commands are not one step. That does not matter for a finished record, which never
// changes. But it may expire between them, and another one be made, whose time to live then
// mostly exceeds the retention of the first. In that case, and for every unfinished record, the
// script decides.
func (f *flight) claimed() (a answer, final bool) {
	native := f.native
	set, pttl := &f.commands[0].Reply, &f.commands[1].Reply
	record, err := set.Text, set.Err
	switch {
	case err == ErrNil:
		native.taken()
		return answer{number: 1, err: set.unconfirmed}, true
	case err == nil:
		native.taken()
		if left := pttl.Number; pttl.Err == nil && strings.HasPrefix(record, "D") && left >= 0 && left <= retention(record) {
			return answer{record: record, left: left}, true
		}
	case isUnknown(err):
		native.refused()
	case !isReadOnly(err):
		return answer{err: err}, true
	}
	return answer{}, false
}

// run runs the script.
func (f *flight) run(ctx context.Context) answer {
	return scriptAnswer(f.runScript(ctx, f.command.script, f.command.args[:f.command.n]))
}

func scriptAnswer(reply *Reply) answer {
	switch {
	case reply.Err != nil:
		return answer{err: reply.Err}
	case reply.Parts == nil && reply.Text == "":
		if reply.Number == 0 { // it has changed nothing
			return answer{}
		}
		return answer{number: reply.Number, err: reply.unconfirmed}
	case len(reply.Parts) != 2:
		return answer{err: errNoRecord}
	}
	first, second := &reply.Parts[0], &reply.Parts[1]
	switch {
	case first.Err != nil || second.Err != nil:
		return answer{err: errNoRecord}
	case first.Text == "": // the claim was made
		if len(second.Text) <= len(store.ID{}) {
			return answer{err: errNoRecord}
		}
		return answer{number: first.Number, record: second.Text, err: reply.unconfirmed}
	}
	return answer{record: first.Text, left: second.Number}
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
	return isServerError(err) && strings.Contains(err.Error(), "syntax error")
}

// isReadOnly reports whether a server has refused to write, but may still read: it is out of
// memory, a replica, can't save, or has too few replicas.
func isReadOnly(err error) bool {
	if !isServerError(err) {
		return false
	}
	switch code, _, _ := strings.Cut(err.Error(), " "); code {
	case "OOM", "READONLY", "MISCONF", "NOREPLICAS":
		return true
	}
	return false
}
