package core

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// recalls reports whether the store can be asked for a finished record. [Guard.Key] asks no store.
func (f *httpOperation) recalls() bool { return f.guard.engine.can.Recall != nil && f.x != nil }

// recall returns the finished record under key if it is of the same parameters, as far as raw tells; raw is zero if there
// is no fingerprint to compare. If it returns nil, Acquire will tell.
func (f *httpOperation) recall(key []byte, raw uint64) *store.Grant {
	if !f.recalls() {
		return nil
	}
	grant, of, ok := f.guard.engine.can.Recall(key)
	if !ok || of != raw || raw == 0 && grant.Fingerprint != "" && !f.guard.ignores {
		return nil
	}
	f.done = grant
	return &f.done
}

// raw returns a hash of in as it was sent: everything that a fingerprint is made of, under a secret of this guard, whose
// rules are the rest. So two requests with one raw have one fingerprint. (Two others have one raw with a probability
// of 2^-63, and their sender could as well send the same request twice.) The text that is hashed is written after buf,
// which is returned with its memory.
func (g *Guard) raw(buf []byte, in *canon.Input) (uint64, []byte) {
	begin := len(buf)
	buf = appendPairs(buf, in.PathParams)
	buf = appendString(buf, in.RawQuery)
	buf = appendString(buf, in.ContentType)
	buf = appendString(buf, in.ContentEncoding)
	buf = appendPairs(buf, in.Header)
	buf = binary.AppendUvarint(buf, uint64(len(in.Consumed)))
	for _, name := range in.Consumed {
		buf = appendString(buf, name)
	}
	buf = binary.LittleEndian.AppendUint64(buf, maphash.Bytes(g.seed, in.Body))
	return maphash.Bytes(g.seed, buf[begin:]), buf
}

func appendPairs(buf []byte, pairs []adapter.Pair) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(pairs)))
	for _, p := range pairs {
		buf = appendString(appendString(buf, p.Name), p.Value)
	}
	return buf
}
