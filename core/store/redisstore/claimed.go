package redisstore

import (
	"strconv"
	"strings"
	"sync"

	"github.com/idem-go/idem/core/store"
)

// claimed holds the records of first attempts that this store has made, by their owners, until the owner does anything but renew
// the lease. Who knows what stands under a key says what is to take its place: the server compares, and cuts nothing. Nothing
// depends on the table: a record that another one has changed meanwhile (waiters, an operator, a takeover) differs, and then, as without an
// entry, the script looks at what is there.
type claimed struct {
	mu      sync.Mutex
	records map[store.Owner]string
}

// claimedMax is how many records are held at most: 3 MB or so. Owners that never return leave theirs behind.
const claimedMax = 8 << 10

// add adds a record that owner has made. If there are too many, any other one goes.
func (c *claimed) add(owner store.Owner, record string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.records) >= claimedMax {
		for any := range c.records {
			delete(c.records, any)
			break
		}
	}
	c.records[owner] = record
}

// take removes and returns the record that owner has made; empty if it is not known. A second try of the same call does not
// find it: the first one may have changed it.
func (c *claimed) take(owner store.Owner) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	record := c.records[owner]
	delete(c.records, owner)
	return record
}

// completeCommand returns the command that makes a finished record, whose result lives for retention ms, and which outlives that
// for outlives ms, unless that is negative. known, unless empty, is the record as the owner has made it. The result is copied: the client
// may still hold the copy after the context has ended.
func completeCommand(key string, owner store.Owner, retention, outlives int64, result []byte, known string) command {
	var b strings.Builder
	b.Grow(len(owner) + 3*maxDecimal + len(known) + maxDecimal + len(result)) // one allocation for all
	number := func(n int64) {
		var memory [maxDecimal]byte
		b.Write(strconv.AppendInt(memory[:0], n, 10))
	}
	b.Write(owner[:])
	ttl := b.Len()
	number(retention + max(outlives, 0))
	ttlEnd := b.Len()
	written, value := ttl, ttlEnd
	if outlives >= 0 {
		written = ttlEnd
		b.WriteByte('+')
		number(outlives)
		value = b.Len()
	}
	if known != "" {
		attempt := strings.IndexByte(known, ';') + 1 // where each ends, or begins
		span := attempt + strings.IndexByte(known[attempt:], ';')
		at := span + 1 + strings.IndexByte(known[span+1:], ';') + 1
		b.WriteByte('D')
		b.WriteString(known[1:attempt])
		b.WriteString(b.String()[written:value])
		b.WriteString(known[span:at])
		b.WriteString(known[at+len(owner):])
	}
	cut := b.Len() - value + 1 // Lua counts from one
	b.Write(result)
	end := b.Len()
	number(int64(cut))
	text := b.String()
	do := command{script: completeScript, key: key, n: 4, known: known}
	if known != "" {
		do.n = 6
	}
	do.args = [6]string{text[:ttl], text[ttl:ttlEnd], text[value:end], text[written:value], known, text[end:]}
	return do
}
