package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store"
)

var errNoRecord = errors.New("redisstore: the value under the key is not a record of this package")

const (
	maxDecimal     = len("-9223372036854775808")
	maxFingerprint = 64 // see store.Claim
)

// aboutHead is the length of what a record tells before the texts: a mark, the ID and the begin.
const aboutHead = 1 + len(store.ID{}) + 8

// acquireCommand returns the command that makes a claim. The layout of the record is in the
// package comment.
func acquireCommand(key string, claim store.Claim, now time.Time) command {
	var memory [len("R01;64;") + 2*maxDecimal + len(claim.Owner) + maxFingerprint + aboutHead + 128]byte // most have room in it
	b := append(memory[:0], "R01;"...)
	tells := claim.About != (store.About{}) || claim.Secret != ""
	if !tells {
		b = append(memory[:0], "R1;"...)
	}
	b = strconv.AppendInt(b, ceil(claim.Retention), 10)
	b = append(b, ';')
	b = strconv.AppendInt(b, int64(len(claim.Fingerprint)), 10)
	b = append(b, ';')
	owner := len(b)
	b = append(b, claim.Owner[:]...)
	b = append(b, claim.Fingerprint...)
	if tells {
		b = append(b, certain)
		b = append(b, claim.ID[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMilli()))
		for _, text := range [...]string{claim.Policy, claim.Creator, claim.Remark, claim.Secret} {
			b = append(b, byte(len(text)))
			b = append(b, text...)
		}
	}
	first := len(b)
	b = strconv.AppendInt(b, ceil(claim.Lease)+ceil(claim.Retention), 10)
	text := string(b) // one allocation for all
	do := command{script: acquireScript, key: key, owner: text[owner : owner+len(claim.Owner)], n: 3}
	do.args[0], do.args[1] = text[:first], text[first:]
	if claim.Takeover {
		do.args[2] = strconv.FormatUint(claim.Attempt, 10)
	}
	return do
}

// record is a record as it was read.
type record struct {
	state       store.State // Running, Abandoned, Free or Done
	attempt     uint64
	owner       string
	fingerprint string
	about       store.About
	secret      string
	begun       time.Time
	free        bool // it is, or was before it was claimed
	uncertain   bool // an operator has made it free
	remaining   time.Duration
	outlives    bool   // it is done, and outlives its result
	expired     bool   // and has lost it
	result      string // of an unfinished record, the steps
}

// The marks before what a record tells. A process of 0.1.0 takes a finished record for one whose result it can't read.
const (
	certain   = '@'
	uncertain = 'A' // it is or was free, has kept its operation, and an earlier run may have taken effect
	_         = 'B' // the same, and none may
)

// parseRecord reads a record whose key expires in left milliseconds (negative: never). What it returns shares the bytes of
// text.
func parseRecord(text string, left int64) (r record, err error) {
	if text == "" {
		return r, errNoRecord
	}
	if left < 0 {
		left = math.MaxInt64
	}
	attempt, rest, ok1 := strings.Cut(text[1:], ";")
	retention, rest, ok2 := strings.Cut(rest, ";")
	length, rest, ok3 := strings.Cut(rest, ";")
	var err1, err2, err3 error
	r.attempt, err1 = strconv.ParseUint(attempt, 10, 64)
	kept, err2 := strconv.ParseInt(retention, 10, 64)
	n, err3 := strconv.Atoi(length)
	if !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil || err3 != nil {
		return r, errNoRecord
	}
	r.free = len(length) > 1 && length[0] == '0'
	r.remaining = milliseconds(left)
	owner := 0
	switch text[0] {
	case 'R', 'W':
		owner = len(store.Owner{})
		if r.state = store.Abandoned; left > kept {
			r.state, r.remaining = store.Running, milliseconds(left-kept)
		}
	case 'A':
		if r.state = store.Abandoned; r.free {
			r.state = store.Free
		}
	case 'D':
		r.state, r.outlives = store.Done, retention[0] == '+'
		if r.outlives && left > kept {
			r.remaining = milliseconds(left - kept)
		}
		r.expired = r.outlives && left <= kept
	default:
		return r, errNoRecord
	}
	if n < 0 || len(rest) < owner+n {
		return r, errNoRecord
	}
	r.owner, r.fingerprint, r.result = rest[:owner], rest[owner:owner+n], rest[owner+n:]
	if attempt[0] == '0' && !r.cutAbout() {
		return r, errNoRecord
	}
	if r.expired {
		r.result = ""
	}
	return r, nil
}

// cutAbout takes what the record tells from the beginning of its result.
func (r *record) cutAbout() bool {
	if len(r.result) < aboutHead {
		return false
	}
	r.uncertain = r.result[0] == uncertain
	copy(r.about.ID[:], r.result[1:])
	if ms := binary.BigEndian.Uint64([]byte(r.result[aboutHead-8 : aboutHead])); ms > 0 {
		r.begun = time.UnixMilli(int64(ms))
	}
	r.result = r.result[aboutHead:]
	for _, text := range [...]*string{&r.about.Policy, &r.about.Creator, &r.about.Remark, &r.secret} {
		var ok bool
		if *text, r.result, ok = cutText(r.result); !ok {
			return false
		}
	}
	return true
}

// cutText cuts a text from the beginning of s, where it is behind a byte with its length.
func cutText(s string) (text, rest string, ok bool) {
	if s == "" || len(s) <= int(s[0]) {
		return "", s, false
	}
	end := 1 + int(s[0])
	return s[1:end], s[end:], true
}

// steps returns text as a Grant has it.
func steps(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// grant returns what a claim that meets with the record gets. To a claim, a free one is never in the way.
func (r *record) grant() store.Grant {
	g := store.Grant{State: r.state, Expired: r.expired, Attempt: r.attempt, ID: r.about.ID, Fingerprint: r.fingerprint,
		Remark: r.about.Remark, Remaining: r.remaining}
	switch r.state {
	case store.Done:
		g.Result = []byte(r.result)
	case store.Free:
		g.State = store.Abandoned
	}
	return g
}

// ceil returns d in milliseconds, rounded up: nothing expires before its time.
func ceil(d time.Duration) int64 {
	ms := d / time.Millisecond
	if d > ms*time.Millisecond {
		ms++
	}
	return int64(ms)
}

// milliseconds returns ms as a duration, or the longest one if ms overflows it.
func milliseconds(ms int64) time.Duration {
	if ms > int64(math.MaxInt64/time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
