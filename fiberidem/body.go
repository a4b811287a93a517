package fiberidem

import (
	"bytes"
	"errors"
	"io"

	"github.com/idem-go/idem/core"
)

const (
	// maxTrusted is how much memory a Content-Length gets before the bytes are there.
	maxTrusted = 64 << 10
	// trustedGrowth is how many times the bytes that have come it gets then, as in httpidem.
	trustedGrowth = 16
)

// readStream reads a body whose length, unless it is negative, is what the client says. It reads
// no more than one byte over the limit.
func readStream(stream io.Reader, length, limit int64) ([]byte, error) {
	var body []byte
	for have := int64(0); have < length; have = int64(len(body)) {
		body = append(make([]byte, 0, min(length, max(maxTrusted, trustedGrowth*have))), body...)
		n, err := io.ReadFull(stream, body[have:cap(body)])
		body = body[:int(have)+n]
		switch {
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF // fasthttp reports a plain io.EOF
		case err != nil:
			return nil, err
		}
	}
	// A middleware in front may have put a longer stream there.
	rest, err := io.ReadAll(io.LimitReader(stream, limit+1-int64(len(body))))
	switch {
	case err != nil:
		return nil, err
	case int64(len(body)+len(rest)) > limit:
		return nil, core.ErrBodyTooLarge
	case len(body) == 0:
		return rest, nil
	}
	return append(body, rest...), nil
}

// buffered is a body stream that has been read, for others to read again. While nobody has
// replaced it, the next one who needs the whole body can look at what it holds.
type buffered struct {
	bytes.Reader
	all []byte
}

func newBuffered(body []byte) *buffered {
	b := &buffered{all: body}
	b.Reset(body)
	return b
}

// rest is what is left to read. It is shared: nobody changes it.
func (b *buffered) rest() []byte { return b.all[len(b.all)-b.Len():] }
