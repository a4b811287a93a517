package core

import (
	"encoding/binary"
	"unsafe"
)

// A stored result is one byte that says what it is, and then:
//
//	nothing       (no bytes at all)       the policy stores no results
//	unavailable                           done, but the response could not be stored
//	response      status, fields, body    status as a uvarint; each field as two strings
//	                                      after their length as a uvarint, an empty
//	                                      name after the last; the rest is the body
//	value         the bytes               what the function of a task returned
//	failed        nothing                 the run failed, and duplicates are rejected
//	reduced       as response             between fields and body the names of the removed fields,
//	                                      after their length, an empty name after the last
//	sealed                                any of these, see package sealed: core never sees it
//
// The byte doubles as a version: a result with an unknown one counts as unavailable, so
// that two versions of a service can share a store while it is being updated.
const (
	resultUnavailable = 1
	resultResponse    = 2
	resultValue       = 3
	resultFailed      = 4
	resultReduced     = 5
)

var (
	unavailable = []byte{resultUnavailable}
	failed      = []byte{resultFailed}
)

// appendResponse leaves out the fields that guards have echoed: a duplicate may have been sent with another key.
func appendResponse(dst []byte, r *Response, filter *HeaderFilter, echoed ...string) []byte {
	start := len(dst)
	dst = append(dst, resultResponse)
	dst = binary.AppendUvarint(dst, uint64(r.Status))
	for _, f := range r.Header {
		if f.Name != "" && filter.stores(f.Name, r) && !contains(echoed, f.Name) {
			dst = appendString(appendString(dst, f.Name), f.Value)
		}
	}
	dst = append(dst, 0)
	for _, name := range r.Removed {
		if name != "" && filter.stores(name, r) {
			dst[start] = resultReduced
			dst = appendString(dst, name)
		}
	}
	if dst[start] == resultReduced {
		dst = append(dst, 0)
	}
	return append(dst, r.Body...)
}

func appendString[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// decodeResponse fills in r from a stored result, and adds the field that marks a replay.
// r refers to the bytes of result, which must not change any more. It reports false,
// and leaves r in an undefined state, if result holds no response.
func decodeResponse(r *Response, result []byte) bool {
	if len(result) == 0 || result[0] != resultResponse && result[0] != resultReduced {
		return false
	}
	status, n := binary.Uvarint(result[1:])
	if n <= 0 || status < 200 || status > 999 {
		return false
	}
	rest := result[1+n:]
	r.Status = int(status)
	for {
		var name, value string
		var ok bool
		if name, rest, ok = cutString(rest); !ok {
			return false
		}
		if name == "" {
			break
		}
		if value, rest, ok = cutString(rest); !ok {
			return false
		}
		r.Header = append(r.Header, Field{Name: name, Value: value})
	}
	for more := result[0] == resultReduced; more; {
		var name string
		if name, rest, more = cutString(rest); !more {
			return false
		}
		if more = name != ""; more {
			r.Removed = append(r.Removed, name)
		}
	}
	r.Header = append(r.Header, Field{Name: ReplayedHeader, Value: "true"})
	r.Body = rest
	return true
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return "", nil, false
	}
	b = b[n:]
	if length == 0 {
		return "", b, true
	}
	// The result is a copy that is never written to, so a string may share it. (All waiters for
	// one run may get the same copy.)
	return unsafe.String(&b[0], int(length)), b[length:], true
}
