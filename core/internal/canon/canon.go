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
// The text is made of these parts, in this order, joined by line feeds. A part that is absent
// leaves nothing, not even a line feed; with none of them the text is empty.
//
//	a=1&body:b=2           pairs: path parameters, query and form
//	{"c":3}                a JSON body
//	if-match:"v1"          a line for each header field that counts
//	type:image/png         the media type
//	0x00 and raw bytes     every other body
//
// Pairs are the path parameters, then those of the query, then the fields of a form.
// Each is written name=value, both as by [net/url.QueryEscape], sorted by the decoded
// name, byte by byte, repeats in their order of appearance, joined by '&'. Query and
// urlencoded form are split at '&' only, name and value at the first '='; an empty segment is
// no pair, one without '=' has an empty value. Unlike [net/url.ParseQuery], which drops what it
// cannot read, a name or value with a bad escape is kept, as "%!" and its escaped raw text,
// which no well-formed one gives; its raw text stands for what it does not decode to.
//
// Fields of a form, urlencoded or multipart, files too, have "body:" before their
// names, also in the order. It is not escaped, while the ':' of a query parameter called
// body:x is; so what came by query is never what came by form. Where a rule asks for the
// name of a field, it is the name without "body:".
//
// A multipart form is what [mime/multipart] makes of it; its boundary, the order of
// fields with different names, and the other headers of its parts do not count. A part is a
// file if it has a file name, and is the pair name=@digest;filename: the digest of its content
// in lower-case hexadecimal, by the algorithm of the rules, and its
// [mime/multipart.Part.FileName] query-escaped. With [Rules.WithoutFileNames] it is
// name=@digest. QueryEscape never lets a bare '@' through, so that no text field can pass
// for a file. Of fields with the same name those of text come first, wherever they are in
// the form: a framework that has parsed the form no longer knows how text and files were
// mixed.
//
// A JSON body is written by the JSON Canonicalization Scheme (RFC 8785), but with
// numbers as exact decimals of any size instead of float64s: equal values get equal
// text and different values different text. Number-like strings stay strings. No
// Unicode normalisation takes place. Excluded members are gone, empty objects and
// arrays stay. JSON is application/json and every type whose subtype has a name before the
// suffix +json.
//
// Header fields are those of [Input.Header], sorted by name, lines of one name in their
// order. Each is written name:value, without the spaces and tabs around the value. The
// media type is what is in Content-Type before the first ';', without spaces and tabs
// around it, the letters of ASCII in lower case. It has no line if it is empty, application/json,
// application/x-www-form-urlencoded or begins with multipart/. Whether there is a body
// does not matter, nor do the rules: these lines always count.
//
// Every other body counts as its raw bytes: another media type or none, a Content-Encoding other than identity, and JSON or
// multipart that is malformed or ambiguous (RFC 8785 rests on RFC 7493: valid UTF-8, no lone
// surrogates, no member name twice), nests deeper than 64 levels or holds a number
// whose exponent has more than 18 digits, leading zeros apart, and which is not zero. An empty
// body counts as nothing.
//
// # Why no two requests have one text
//
// Each line says by its beginning what it is. Pairs have a '=' before any ':' but that of
// "body:"; JSON begins with a bracket, a brace or a quote, or holds neither '=' nor ':'; a
// header line begins with a token and a ':'. Two names would break that, body and type. The
// value of a header field of such a name begins with a space, which no pair holds, and with
// which no media type begins. A line feed is escaped in pairs and in JSON. HTTP lets none into
// a header field; if there is one all the same, a space follows it, with which no line begins.
//
// Raw bytes may hold anything, also a line that reads like a header line, or like all the
// other parts. So they come last, after the byte 0x00, with which no line begins: what is
// before the first line with this mark is all that is not the body. The mark also says
// how the body was read: the same bytes as text/plain and as JSON are two requests, and so
// are a=b as a query and as text/plain. Without it a client that sends JSON under the wrong
// Content-Type, and is answered 415, would have that 415 replayed when it then sends the
// same bytes under the right one.
//
// The text does not say why a body counts as raw bytes: the same bytes without a
// Content-Type, as malformed JSON, as a malformed form, and under another Content-Encoding
// are one request.
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
	// Algorithm is the digest's. With a MAC it is that of files only.
	Algorithm Algorithm
	// MAC, unless nil, makes the digest.
	MAC *MAC
	// DefaultNames leaves out names at the top level of query, form and JSON object, in any case, with '_' and '-'
	// ignored (but _t is not t):
	//
	//   - timestamp, ts, _t, requestTime and nonce.
	//   - sign and signature, if one of these is there, too, that is not _t, nor one of Input.Consumed. Else they count.
	//   - lat, lng, lon, latitude and longitude, if query or body has anything else that counts: a pair, a member, a file, or
	//     a body that is neither a form nor a JSON object. Else they count.
	//
	// What Exclude or Select leaves out is as if it were not there. Path parameters are never left out, nor are files: a file called
	// "signature" is content.
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
	// WithoutFileNames leaves out the names of these files, but not what they hold, nor
	// the names of their fields.
	WithoutFileNames bool
	// RawBody makes every body count as raw bytes.
	RawBody bool
}

// Input is what a request brings. Nothing of it is kept or changed.
type Input struct {
	// PathParams are the parameters of the route, decoded as core.Request says.
	PathParams []Pair
	// RawQuery is the query as sent, without the question mark.
	RawQuery string
	// ContentType and ContentEncoding are the header fields of these names.
	ContentType, ContentEncoding string
	// Header holds the other header fields that count, line by line. Names are tokens
	// (RFC 9110, section 5.6.2) in lower case; values may be as sent. The order matters
	// only among the lines of one name.
	Header []Pair
	// Consumed are the names of the parameters that an outer verifier has used up as a
	// signature (a timestamp, a nonce, the signature itself). They do not count in a query,
	// in a form, and as members of a JSON object at the top level, whatever the rules say.
	// They are matched exactly. Path parameters and files of such a name do count.
	Consumed []string
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
//
// With a MAC the digest is that of dst, a line feed, and the text: so it tells nothing of equal
// texts behind another dst. It has 64 bytes.
func (r *Rules) AppendDigest(dst []byte, in *Input) ([]byte, Info) {
	s := scratches.Get().(*scratch)
	cut, rest, info := s.canonical(r, in)
	switch {
	case r.MAC != nil:
		dst = hex.AppendEncode(dst, r.MAC.Append(s.sum[:0], dst, lineFeed, s.out[:cut], rest, s.out[cut:]))
	case len(rest) == 0:
		dst = r.Algorithm.appendSum(dst, s.out)
	case len(s.out) == 0:
		dst = r.Algorithm.appendSum(dst, rest)
	default:
		h := s.hash(r.Algorithm)
		h.Write(s.out[:cut])
		h.Write(rest)
		h.Write(s.out[cut:])
		dst = s.appendHash(dst, h)
	}
	s.free()
	return dst, info
}

var lineFeed = []byte{'\n'}

// AppendCanonical appends the canonical text itself to dst, for tests and for looking
// into why two requests have different keys.
func (r *Rules) AppendCanonical(dst []byte, in *Input) ([]byte, Info) {
	s := scratches.Get().(*scratch)
	cut, rest, info := s.canonical(r, in)
	dst = append(dst, s.out[:cut]...)
	dst = append(dst, rest...)
	dst = append(dst, s.out[cut:]...)
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
	selected int      // pairs found by Rules.Select
	consumed []string // Input.Consumed
	notes
	order []int // of Input.Header

	pairs    []pair // the pairs in out
	prefix   string // before the names of those to come
	common   int    // how much of it all names have in common
	unsorted bool   // whether they may be out of order

	md5, sha256 hash.Hash // made when first needed
	sum         [sha256.Size]byte
	chunk       []byte // for hashing files
}

// notes are what one reading of a request says about default names.
type notes struct {
	leftOut   nameClass // the classes that are left out
	seen      nameClass // those that there are, of names that would count otherwise
	otherwise bool      // anything else counts, in the query or the body
}

// free gives s back to the pool.
func (s *scratch) free() {
	s.consumed = nil
	s.json.src, s.json.rules, s.json.consumed = nil, nil, nil
	s.json.out, s.json.spare = nil, nil
	s.out = kept(s.out, 1)
	s.spare = kept(s.spare, 1)
	s.raw = kept(s.raw, 1)
	s.names = kept(s.names, 1)
	s.order = kept(s.order, 8)
	s.pairs = kept(s.pairs, 32)
	s.json.members = kept(s.json.members, 32)
	s.json.states = kept(s.json.states, 4)
	scratches.Put(s)
}

// kept returns buffer for reuse, or nil if with elements of size bytes it is too large.
func kept[T any](buffer []T, size int) []T {
	if cap(buffer) > maxKept/size {
		return nil
	}
	return buffer[:0]
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

// rawMark comes before a body that counts as raw bytes. No other line begins with it.
const rawMark = 0x00

// canonical leaves the canonical text in s.out and in rest, which goes between s.out[:cut]
// and s.out[cut:]. It is a part of the body that is in the text as it was sent, and so need not
// be copied.
func (s *scratch) canonical(r *Rules, in *Input) (cut int, rest []byte, info Info) {
	s.notes = notes{leftOut: allDefaultNames}
	cut, rest, info = s.read(r, in)
	if counting := s.seen.counting(s.otherwise); counting != 0 { // seldom
		s.notes = notes{leftOut: allDefaultNames &^ counting}
		cut, rest, info = s.read(r, in)
	}
	return cut, rest, info
}

// read is canonical while the classes s.leftOut of default names are left out. It notes what there is of them.
func (s *scratch) read(r *Rules, in *Input) (cut int, rest []byte, info Info) {
	s.out, s.pairs, s.selected, s.consumed = s.out[:0], s.pairs[:0], 0, in.Consumed
	s.prefix, s.common = "", 0
	s.unsorted = false

	for _, p := range in.PathParams {
		s.pathPair(p)
	}
	if in.RawQuery != "" {
		s.raw = append(s.raw[:0], in.RawQuery...)
		s.encodedPairs(r, s.raw)
	}

	mediaType := mediaTypeOf(in.ContentType)
	kind := rawBody
	switch {
	case len(in.Body) == 0:
		kind = noBody
	case isIdentity(in.ContentEncoding) && !r.RawBody:
		kind = kindOf(mediaType)
	}
	switch kind {
	case formBody:
		s.beginForm()
		s.encodedPairs(r, in.Body)
		kind = noBody
	case multipartBody:
		kind = rawBody
		s.beginForm()
		if s.multipart(r, in.ContentType, in.Body) {
			kind = noBody
		}
	}
	s.joinPairs()
	info.Selected = s.selected

	if kind == jsonBody {
		pairs := len(s.out)
		s.beginLine(false)
		var found int
		var ok bool
		rest, found, ok = s.readJSON(r, in.Body)
		switch {
		case !ok:
			s.out = s.out[:pairs]
			kind = rawBody
		case r.Select != nil:
			info.Selected += found
			if found == 0 {
				s.out, rest = s.out[:pairs], nil
			}
		}
	}
	cut = len(s.out)
	s.addLines(in.Header, mediaType, len(rest) > 0)
	if kind == rawBody {
		info.Raw, s.otherwise = true, true
		s.beginLine(false)
		s.out = append(s.out, rawMark)
		return len(s.out), in.Body, info
	}
	return cut, rest, info
}
