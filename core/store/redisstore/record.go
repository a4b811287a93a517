package redisstore

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
)

var errNoRecord = errors.New("redisstore: what stands under the key is no record of this package")

// firstRun returns the record of the first run under a claim. The layout is in the package
// comment.
func firstRun(claim core.Claim) string {
	var b strings.Builder
	b.Grow(len("R1;9223372036855;64;") + len(claim.Owner) + len(claim.Fingerprint))
	b.WriteString("R1;")
	b.WriteString(decimal(ceil(claim.Retention)))
	b.WriteByte(';')
	b.WriteString(decimal(int64(len(claim.Fingerprint))))
	b.WriteByte(';')
	b.Write(claim.Owner[:])
	b.WriteString(claim.Fingerprint)
	return b.String()
}

// parseRecord reads a record whose key expires in left milliseconds (negative: never). The
// grant shares no memory with record but the fingerprint, a string.
func parseRecord(record string, left int64) (core.Grant, error) {
	if record == "" {
		return core.Grant{}, errNoRecord
	}
	if left < 0 {
		left = math.MaxInt64
	}
	attempt, rest, ok1 := strings.Cut(record[1:], ";")
	retention, rest, ok2 := strings.Cut(rest, ";")
	length, rest, ok3 := strings.Cut(rest, ";")
	g := core.Grant{}
	var err1, err2, err3 error
	g.Attempt, err1 = strconv.ParseUint(attempt, 10, 64)
	kept, err2 := strconv.ParseInt(retention, 10, 64)
	n, err3 := strconv.Atoi(length)
	if !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil || err3 != nil {
		return core.Grant{}, errNoRecord
	}
	owner := 0
	switch record[0] {
	case 'R', 'W':
		owner = len(core.Owner{})
		g.State, g.Remaining = core.Running, milliseconds(left-kept)
		if left <= kept {
			g.State, g.Remaining = core.Abandoned, milliseconds(left)
		}
	case 'A':
		g.State, g.Remaining = core.Abandoned, milliseconds(left)
	case 'D':
		g.State, g.Remaining = core.Done, milliseconds(left)
	default:
		return core.Grant{}, errNoRecord
	}
	if n < 0 || len(rest) < owner+n {
		return core.Grant{}, errNoRecord
	}
	g.Fingerprint = rest[owner : owner+n]
	if g.State == core.Done {
		g.Result = []byte(rest[n:])
	}
	return g, nil
}

// ownedBy reports whether a running record is owner's.
func ownedBy(record string, owner core.Owner) bool {
	for range 3 {
		_, record, _ = strings.Cut(record, ";")
	}
	return strings.HasPrefix(record, string(owner[:]))
}

// ceil returns d in milliseconds, rounded up: what is asked for stands, if it is ever so short.
func ceil(d time.Duration) int64 {
	ms := d / time.Millisecond
	if d > ms*time.Millisecond {
		ms++
	}
	return int64(ms)
}

// milliseconds returns the duration of ms, or the longest one.
func milliseconds(ms int64) time.Duration {
	if ms > int64(math.MaxInt64/time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// decimal returns n as the scripts want it.
func decimal(n int64) string { return strconv.FormatInt(n, 10) }
