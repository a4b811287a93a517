// Package buffer reads bodies into memory that is used again.
package buffer

import (
	"io"
	"math"

	"github.com/idem-go/idem/core/adapter"
)

const (
	// MaxPooled is the largest buffer that is kept for another request, in bytes.
	MaxPooled = 64 << 10
	// maxTrusted is how much memory a Content-Length gets before the bytes are there: no more than
	// what is pooled anyway. From there on the buffer grows with what has come.
	maxTrusted = MaxPooled
	// trustedGrowth is how many times the bytes that have come a Content-Length gets after that. So a
	// client gets at most sixteen times the memory that it fills; and of a body of 1 MiB, the usual
	// limit, no more than the first sixteenth is copied on the way.
	trustedGrowth = 16
	// firstBuffer is the size of the buffer for a body of unknown length.
	firstBuffer = 512
)

// Buffer reads bodies whose length, as the client states it, need not be true: memory grows with the
// bytes that come. Each body overwrites the one before it. The zero Buffer is ready for use; it must not
// be used concurrently.
type Buffer struct {
	kept  []byte  // for another body
	extra [1]byte // tells whether a full buffer holds the whole body
}

// ReadAll reads body to its end. length is what the client states, zero or less if it states none; it
// only sizes the memory. A body of more than limit bytes is [adapter.ErrBodyTooLarge], and no more than
// limit+1 of them are read. Any other error is the body's own. What was read before an error is
// returned with it.
func (r *Buffer) ReadAll(body io.Reader, length, limit int64) ([]byte, error) {
	limit = min(limit, math.MaxInt64-1) // one more byte can be counted
	b := r.kept[:0]
	want := min(length, maxTrusted)
	if want <= 0 {
		want = firstBuffer
	}
	if int64(cap(b)) < want {
		b = make([]byte, 0, want)
	}
	for {
		if have := int64(len(b)); len(b) == cap(b) && have < length {
			b = r.grow(b, min(trustedGrowth*have, length))
		}
		free := b[len(b):cap(b)]
		full := len(free) == 0
		if full {
			// It may well be the whole body: growing waits for one more byte to turn up.
			free = r.extra[:]
		}
		if left := limit + 1 - int64(len(b)); int64(len(free)) > left {
			free = free[:left]
		}
		n, err := body.Read(free)
		if int64(len(b)+n) > limit {
			err = adapter.ErrBodyTooLarge
		} else {
			if full && n > 0 {
				b = r.grow(b, min(2*int64(len(b)), limit))
				copy(b[len(b):cap(b)], free[:n])
			}
			b = b[:len(b)+n]
		}
		if err != nil {
			r.keep(b)
			if err == io.EOF {
				err = nil
			}
			return b, err
		}
	}
}

// GiveAway leaves the bytes that ReadAll has returned to somebody else.
func (r *Buffer) GiveAway() { r.kept = nil }

// grow returns a copy of b with that capacity. b itself is kept for another body.
func (r *Buffer) grow(b []byte, capacity int64) []byte {
	r.keep(b)
	return append(make([]byte, 0, capacity), b...)
}

func (r *Buffer) keep(b []byte) {
	if cap(b) <= MaxPooled {
		r.kept = b
	}
}
