// Package canon turns the parameters of a request into one canonical text and its
// digest: the P of a key, and its fingerprint. It also reads and escapes the other
// parts of a key.
//
//	rules := canon.Rules{DefaultNames: true}
//	p, _ := rules.AppendDigest(nil, &canon.Input{
//		ContentType: "application/json",
//		Body:        []byte(`{"requestKey":"key","requestTime":"20190101120001","requestValue":"1000"}`),
//	})
//	// p is c2a36fed15128e9e878583caaafefde9
//
// # The canonical text
//
// The text is the pairs, or the body, or both joined by a line feed, or nothing.
//
// Pairs are the path parameters, then those of the query, then the fields of a form.
// Each is written name=value, both as by [net/url.QueryEscape], sorted by the decoded
// name, repeats in their order of appearance, joined by '&'. Query and urlencoded
// form are split at '&' only. Unlike [net/url.ParseQuery], which drops what it cannot
// read, a name or value with a bad escape is kept, as "%!" and its escaped raw text,
// which no well-formed one gives. A file in a multipart form is the pair
// name=@digest-of-its-content; QueryEscape never lets a bare '@' through, so that no
// text field can pass for a file. Of parts with the same name the text fields come
// first, wherever they stand in the form: a framework that has parsed the form no
// longer knows how fields and files were mixed.
//
// A JSON body is written by the JSON Canonicalization Scheme (RFC 8785), but with
// numbers as exact decimals of any size instead of float64s: equal values get equal
// text and different values different text. Number-like strings stay strings. No
// Unicode normalisation takes place. Excluded members are gone, empty objects and
// arrays stay.
//
// Every other body counts as its raw bytes: another media type or none, a charset
// that is neither UTF-8 nor US-ASCII, a Content-Encoding, and JSON or multipart that
// is malformed or ambiguous (RFC 8785 rests on RFC 7493: valid UTF-8, no lone
// surrogates, no member name twice), nests deeper than 64 levels or holds a number
// whose exponent has more than 18 digits. An empty body counts as nothing.
//
// Raw bytes are written behind a mark, the byte 0x00, which begins neither pairs, as
// they are escaped, nor JSON. So the text says how the body was read: the same bytes
// as text/plain and as JSON are two requests, and so are a=b as a query and as
// text/plain. Without the mark a client that sends JSON under the wrong Content-Type,
// and is answered 415, would have that 415 replayed when it then sends the same bytes
// under the right one.
//
// # Selection
//
// With [Rules.Select] a JSON body is reduced to the values on the selected paths.
// Objects and arrays on the way are kept only as far as they lead to such a value.
// Within an array that is on the way, an element without a selected value leaves its
// place empty, as in [,{"sku":1}], which is no JSON text and so is like no other
// value; empty places at the end are left out. So a value keeps its position, while
// what follows the last selected value cannot make a difference. If nothing at all is
// selected the body counts as nothing: it is then for the caller to look at
// [Info.Selected], as all such requests have the same digest.
package canon

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"sync"
)

// Pair is a name and a value, both decoded.
type Pair struct {
	Name, Value string
}

// Algorithm is a digest algorithm.
type Algorithm uint8

// The algorithms. The zero value is MD5, which serves to tell parameters apart, not to
// protect them; where FIPS 140 forbids it, use SHA256.
const (
	MD5 Algorithm = iota
	SHA256
)

// Rules say which parameters count, and how they are digested. The zero value counts
// all of them and uses MD5. Rules are safe for concurrent use as long as nobody
// changes them.
type Rules struct {
	// Algorithm is the digest's.
	Algorithm Algorithm
	// DefaultNames leaves out the request's own metadata and coordinates, at the top
	// level of query, form and JSON object: timestamp, ts, _t, requestTime, nonce,
	// sign, signature, lat, lng, lon, latitude and longitude, in any case, with '_'
	// and '-' ignored (but _t is not t). Path parameters are never left out, nor are
	// files: a file called "signature" is content.
	DefaultNames bool
	// Exclude is left out in addition; nil means nothing. The name of a pair is a
	// path of one segment.
	Exclude *Paths
	// Select, unless nil, leaves out everything that does not lie on or under one of
	// its paths; path parameters and raw bodies count all the same. Exclude and
	// DefaultNames apply within.
	Select *Paths
	// WithoutFiles leaves out the files of a multipart form.
	WithoutFiles bool
}

// Input is what a request brings. Nothing of it is kept or changed.
type Input struct {
	// PathParams are the decoded parameters of the route.
	PathParams []Pair
	// RawQuery is the query as sent, without the question mark.
	RawQuery string
	// ContentType and ContentEncoding are the header fields of these names.
	ContentType, ContentEncoding string
	// Body is the whole body as sent.
	Body []byte
}

// Info says how an [Input] was read.
type Info struct {
	// Raw says that the body counted as raw bytes.
	Raw bool
	// Selected is the number of values that [Rules.Select] found. A value within a
	// selected one is not counted again; path parameters and raw bodies never are.
	Selected int
}

// AppendDigest appends the digest of the canonical text to dst, in lower-case
// hexadecimal, and returns the extended slice. It allocates nothing if dst has the
// capacity (32 bytes for MD5, 64 for SHA256), unless the body is a multipart form that is
// written in an unusual way.
func (r *Rules) AppendDigest(dst []byte, in *Input) ([]byte, Info) {
	s := scratches.Get().(*scratch)
	rest, info := s.canonical(r, in)
	switch {
	case len(rest) == 0:
		dst = r.Algorithm.appendSum(dst, s.out)
	case len(s.out) == 0:
		dst = r.Algorithm.appendSum(dst, rest)
	default:
		h := s.hash(r.Algorithm)
		h.Write(s.out)
		h.Write(rest)
		dst = s.appendHash(dst, h)
	}
	s.free()
	return dst, info
}

// AppendCanonical appends the canonical text itself to dst, for tests and for looking
// into why two requests have different keys.
func (r *Rules) AppendCanonical(dst []byte, in *Input) ([]byte, Info) {
	s := scratches.Get().(*scratch)
	rest, info := s.canonical(r, in)
	dst = append(dst, s.out...)
	dst = append(dst, rest...)
	s.free()
	return dst, info
}

func (a Algorithm) appendSum(dst, text []byte) []byte {
	if a == SHA256 {
		sum := sha256.Sum256(text)
		return hex.AppendEncode(dst, sum[:])
	}
	sum := md5.Sum(text)
	return hex.AppendEncode(dst, sum[:])
}

// maxKept is the capacity in bytes up to which a buffer goes back to the pool, so that
// one huge request does not pin its memory. It is above the usual body limit of 1 MiB.
const maxKept = 2 << 20

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// scratch is the memory that one derivation works in. What is left in it from an
// earlier request is never read: every buffer starts at length 0 and is only ever
// read up to what has been written since.
type scratch struct {
	out      []byte // the canonical text
	spare    []byte // for putting members and pairs in order
	raw      []byte // the query, or the delimiter or a field of a multipart form
	names    []byte // a decoded name
	json     jsonReader
	selected int // pairs found by Rules.Select

	pairs      []pairRef // where the pairs are in out
	sparePairs []pairRef // for putting them in order
	unsorted   bool      // whether they may be out of order
	files      bool      // whether there may be files among them
	buckets    [256]int

	md5, sha256 hash.Hash // made when first needed
	sum         [sha256.Size]byte
	chunk       []byte // for hashing files
}

// free gives s back to the pool.
func (s *scratch) free() {
	s.json.src, s.json.rules = nil, nil
	s.json.out, s.json.spare = nil, nil
	s.out = kept(s.out, 1)
	s.spare = kept(s.spare, 1)
	s.raw = kept(s.raw, 1)
	s.names = kept(s.names, 1)
	s.pairs = kept(s.pairs, 16)
	s.sparePairs = kept(s.sparePairs, 16)
	s.json.members = kept(s.json.members, 32)
	s.json.states = kept(s.json.states, 4)
	s.json.postponed = kept(s.json.postponed, 32)
	s.json.waiting = kept(s.json.waiting, 32)
	scratches.Put(s)
}

// kept returns buffer for reuse, or nil if with elements of size bytes it is too large.
func kept[T any](buffer []T, size int) []T {
	if cap(buffer) > maxKept/size {
		return nil
	}
	return buffer[:0]
}

// grown returns list with room for more. What has come from the first read bytes of a text
// says how many there will be in all of them: a list of a hundred thousand, which is more
// than the pool keeps, is not copied a dozen times on its way there.
func grown[T any](list []T, read, all int) []T {
	const many = 1024
	n := len(list)
	if n < many {
		return slices.Grow(list, max(n, 16))
	}
	toCome := float64(n) * float64(all-read) / float64(max(read, 1))
	return slices.Grow(list, int(toCome)+many)
}

// hash returns the pooled hash of algorithm a, reset.
func (s *scratch) hash(a Algorithm) hash.Hash {
	h := &s.md5
	if a == SHA256 {
		h = &s.sha256
	}
	if *h == nil {
		if a == SHA256 {
			*h = sha256.New()
		} else {
			*h = md5.New()
		}
	}
	(*h).Reset()
	return *h
}

func (s *scratch) appendHash(dst []byte, h hash.Hash) []byte {
	return hex.AppendEncode(dst, h.Sum(s.sum[:0]))
}

// rawMark stands before a body that counts as raw bytes. Neither pairs nor JSON begin
// with it.
const rawMark = 0x00

// canonical leaves the canonical text in s.out and in rest, which is a part of the
// body that stands in the text as it is, and so need not be copied.
func (s *scratch) canonical(r *Rules, in *Input) (rest []byte, info Info) {
	s.out, s.pairs, s.selected = s.out[:0], s.pairs[:0], 0
	s.unsorted, s.files = false, false

	for _, p := range in.PathParams {
		s.pathPair(p)
	}
	if in.RawQuery != "" {
		s.raw = append(s.raw[:0], in.RawQuery...)
		s.encodedPairs(r, s.raw)
	}

	kind := rawBody
	switch {
	case len(in.Body) == 0:
		kind = noBody
	case isIdentity(in.ContentEncoding):
		kind = kindOf(in.ContentType)
	}
	switch kind {
	case formBody:
		s.encodedPairs(r, in.Body)
		kind = noBody
	case multipartBody:
		kind = rawBody
		if s.multipart(r, in.ContentType, in.Body) {
			kind = noBody
		}
	}
	s.joinPairs()
	info.Selected = s.selected

	if kind == noBody {
		return nil, info
	}
	pairs := len(s.out)
	if pairs > 0 {
		s.out = append(s.out, '\n')
	}
	if kind == jsonBody {
		if rest, found, ok := s.readJSON(r, in.Body); ok {
			if r.Select != nil {
				info.Selected += found
				if found == 0 {
					s.out, rest = s.out[:pairs], nil
				}
			}
			return rest, info
		}
	}
	info.Raw = true
	s.out = append(s.out, rawMark)
	return in.Body, info
}
