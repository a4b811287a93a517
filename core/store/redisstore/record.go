package redisstore

import (
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

// acquireCommand returns the command that makes a claim. The layout of the record is in the
// package comment.
func acquireCommand(key string, claim store.Claim) command {
	var memory [len("R1;64;") + 2*maxDecimal + len(claim.Owner) + maxFingerprint]byte
	b := append(memory[:0], "R1;"...)
	b = strconv.AppendInt(b, ceil(claim.Retention), 10)
	b = append(b, ';')
	b = strconv.AppendInt(b, int64(len(claim.Fingerprint)), 10)
	b = append(b, ';')
	owner := len(b)
	b = append(b, claim.Owner[:]...)
	b = append(b, claim.Fingerprint...)
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

// ownerCommand returns the command for a script that takes the owner, a duration and a result.
// The result is copied: the client may still hold the copy after the context has ended.
func ownerCommand(do script, key string, owner store.Owner, span time.Duration, result []byte) command {
	var b strings.Builder
	b.Grow(len(owner) + maxDecimal + len(result))
	b.Write(owner[:])
	var memory [maxDecimal]byte
	b.Write(strconv.AppendInt(memory[:0], ceil(span), 10))
	end := b.Len()
	b.Write(result)
	text := b.String() // one allocation for all
	c := command{script: do, key: key, n: 3}
	c.args = [3]string{text[:len(owner)], text[len(owner):end], text[end:]}
	return c
}

// parseRecord reads a record whose key expires in left milliseconds (negative: never). The
// grant shares only the fingerprint, a string, with record.
func parseRecord(record string, left int64) (store.Grant, error) {
	if record == "" {
		return store.Grant{}, errNoRecord
	}
	if left < 0 {
		left = math.MaxInt64
	}
	attempt, rest, ok1 := strings.Cut(record[1:], ";")
	retention, rest, ok2 := strings.Cut(rest, ";")
	length, rest, ok3 := strings.Cut(rest, ";")
	g := store.Grant{}
	var err1, err2, err3 error
	g.Attempt, err1 = strconv.ParseUint(attempt, 10, 64)
	kept, err2 := strconv.ParseInt(retention, 10, 64)
	n, err3 := strconv.Atoi(length)
	if !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil || err3 != nil {
		return store.Grant{}, errNoRecord
	}
	owner := 0
	switch record[0] {
	case 'R', 'W':
		owner = len(store.Owner{})
		g.State, g.Remaining = store.Running, milliseconds(left-kept)
		if left <= kept {
			g.State, g.Remaining = store.Abandoned, milliseconds(left)
		}
	case 'A':
		g.State, g.Remaining = store.Abandoned, milliseconds(left)
	case 'D':
		g.State, g.Remaining = store.Done, milliseconds(left)
	default:
		return store.Grant{}, errNoRecord
	}
	if n < 0 || len(rest) < owner+n {
		return store.Grant{}, errNoRecord
	}
	g.Fingerprint = rest[owner : owner+n]
	if g.State == store.Done {
		g.Result = []byte(rest[n:])
	}
	return g, nil
}

// wasFree reports whether a running record was free before it was claimed.
func wasFree(record string) bool {
	fields := strings.SplitN(record, ";", 4)
	return len(fields) == 4 && len(fields[2]) > 1 && fields[2][0] == '0'
}

// ownedBy reports whether a running record is owner's.
func ownedBy(record string, owner store.Owner) bool {
	for range 3 {
		_, record, _ = strings.Cut(record, ";")
	}
	return strings.HasPrefix(record, string(owner[:]))
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
