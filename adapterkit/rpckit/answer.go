package rpckit

import (
	"encoding/binary"
	"slices"
)

// Answer is what a call has answered, as it is stored.
type Answer struct {
	// Status is a google.rpc.Status in Protobuf's binary format. Empty: OK.
	Status []byte
	// Type is the full name of the response's message, and Body the message. With a Status they are empty.
	Type string
	Body []byte
	// Header and Trailer are the stored metadata. Their names are in lower case; values of names that end with "-bin" are
	// the bytes, not their base64.
	Header, Trailer map[string][]string
}

// answerVersion is the first byte of a stored answer. An answer with another one counts as not stored.
const answerVersion = 1

// Encode returns the bytes that are stored of a. Nil encodes to none, which Decode does not accept.
func (a *Answer) Encode() []byte {
	if a == nil {
		return nil
	}
	b := make([]byte, 0, 64+len(a.Status)+len(a.Type)+len(a.Body))
	b = append(b, answerVersion)
	b = appendPart(appendPart(appendPart(b, a.Status), a.Type), a.Body)
	for _, md := range []map[string][]string{a.Header, a.Trailer} {
		b = binary.AppendUvarint(b, uint64(len(md)))
		for name, values := range md {
			b = binary.AppendUvarint(appendPart(b, name), uint64(len(values)))
			for _, value := range values {
				b = appendPart(b, value)
			}
		}
	}
	return b
}

// Decode reads what Encode has made. It reports false for anything else. The Answer refers to the bytes of b.
func Decode(b []byte) (*Answer, bool) {
	if len(b) == 0 || b[0] != answerVersion {
		return nil, false
	}
	r := reader{b: b[1:]}
	a := &Answer{Status: r.part(), Type: string(r.part()), Body: r.part()}
	for _, md := range []*map[string][]string{&a.Header, &a.Trailer} {
		for range r.count() {
			name := string(r.part())
			values := make([]string, r.count())
			for i := range values {
				values[i] = string(r.part())
			}
			if *md == nil {
				*md = make(map[string][]string)
			}
			(*md)[name] = values
		}
	}
	return a, !r.bad && len(r.b) == 0
}

func appendPart[T string | []byte](b []byte, part T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

// reader cuts parts from b. bad says that it could not.
type reader struct {
	b   []byte
	bad bool
}

// count returns a number of parts, none of which can be shorter than a byte.
func (r *reader) count() int {
	count, n := binary.Uvarint(r.b)
	if n <= 0 || count > uint64(len(r.b)-n) {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return int(count)
}

func (r *reader) part() []byte {
	n := r.count()
	part := r.b[:n]
	r.b = r.b[n:]
	return slices.Clip(part)
}
