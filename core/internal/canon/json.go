package canon

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep objects and arrays may nest. It bounds the recursion, and how
// often a byte is moved when members are put in order: once for each level.
const maxDepth = 64

// readJSON reads a JSON text. It appends the canonical form to s.out or, if it stands
// in text as it is, returns that part of it. found is the number of values that
// Rules.Select found. If the text is not one that can be brought into canonical form,
// ok is false and s.out is as it was.
func (s *scratch) readJSON(r *Rules, text []byte) (rest []byte, found int, ok bool) {
	if !utf8.Valid(text) {
		return nil, 0, false
	}
	before := len(s.out)
	j := &s.json
	j.src, j.rules, j.consumed = text, r, s.consumed
	j.out, j.spare = s.out, s.spare
	j.copied, j.selected, j.notes = 0, 0, s.notes
	j.members, j.states = j.members[:0], j.states[:0]

	all := scope{seeking: r.Select != nil, names: r.DefaultNames || len(s.consumed) > 0}
	j.states, all.exclude = r.Exclude.begin(j.states)
	j.states, all.sel = r.Select.begin(j.states)

	i := j.blanks(0)
	j.cut(0, i)
	if i < len(text) && text[i] != '{' {
		j.otherwise = true
	}
	i, _ = j.value(i, all.orNil(), 0)
	end := i
	if i >= 0 && j.blanks(i) != len(text) {
		end = -1
	}
	s.out, s.spare = j.out, j.spare
	if end < 0 {
		s.out = s.out[:before]
		return nil, 0, false
	}
	s.notes = j.notes
	if len(s.out) == before {
		return text[j.copied:end], j.selected, true
	}
	s.out = append(s.out, text[j.copied:end]...)
	return nil, j.selected, true
}

// jsonReader reads one JSON text and writes its canonical form.
//
// It writes lazily: what is in the source as it would be in the canonical form is
// only copied when something different comes, so that a text without blanks, with its
// members in order, is not copied at all. Positions in the canonical form are those
// that at returns, whether that part has been copied or not.
//
// Its methods take an index into src and return the one after what they have read, or
// -1 if the text is malformed.
type jsonReader struct {
	src    []byte // valid UTF-8
	out    []byte
	copied int // src[:copied] has been copied to out, or cut
	rules  *Rules
	// consumed is Input.Consumed.
	consumed []string

	members  []member // a stack of the members of the open objects
	spare    []byte   // for putting members in order
	states   []int32  // a stack of the states of Rules.Exclude and Rules.Select
	selected int      // the values that Rules.Select has found
	notes
}

// member is a member of an object. Its name and value are at start:end in the
// canonical form. If it does not count, only its name does.
//
// It has no more than four words, so that the compiler keeps it in registers.
type member struct {
	prefix     uint64 // the first bytes of the name, for quick comparison
	start, end int
	nameLen    int // in canonical form, with the quotes
}

func (m *member) isDropped() bool { return m.end == m.start+m.nameLen }

// scope is what the rules say about the things within an object or array. nil means
// that all of them count.
type scope struct {
	exclude, sel frame // the states that are live
	seeking      bool  // nothing counts until a path of Rules.Select ends
	names        bool  // the object is the outermost one: see leavesOut
}

// orNil returns nil if all that is within counts.
func (sc *scope) orNil() *scope {
	if sc.exclude.empty() && !sc.seeking && !sc.names {
		return nil
	}
	return sc
}

func (sc *scope) counts() bool { return sc == nil || !sc.seeking }

// onlyNames reports whether nothing but leavesOut has a say.
func (sc *scope) onlyNames() bool { return sc.exclude.empty() && !sc.seeking }

// leavesOut reports whether a member of the outermost object, whose canonical name this is, does
// not count for its name alone.
func (j *jsonReader) leavesOut(name []byte) bool {
	return j.rules.DefaultNames && classOf(name)&j.leftOut != 0 || j.isConsumed(name)
}

func (j *jsonReader) isConsumed(name []byte) bool {
	for _, consumed := range j.consumed {
		if isCanonical(name, consumed) {
			return true
		}
	}
	return false
}

// isCanonical reports whether a name in canonical form stands for text.
func isCanonical(name []byte, text string) bool {
	for len(name) > 0 && text != "" {
		c, n := nameByte(name)
		if c != text[0] {
			return false
		}
		name, text = name[n:], text[1:]
	}
	return len(name) == 0 && text == ""
}

// treatment is what the rules say about a member or element.
type treatment uint8

const (
	counts     treatment = iota
	unselected           // no path of Rules.Select ends here or can end within
	excluded
)

// enter sets within to the scope within the member with the given canonical name, or
// within the array element with the given index (-1 for members).
func (j *jsonReader) enter(sc, within *scope, name []byte, index int) treatment {
	*within = scope{}
	if sc.names && index < 0 && j.isConsumed(name) {
		return excluded
	}
	hit := false
	if !sc.exclude.empty() {
		if j.states, within.exclude, hit = j.rules.Exclude.step(j.states, sc.exclude, name, index); hit {
			*within = scope{}
			return excluded
		}
	}
	if sc.seeking {
		j.states, within.sel, within.seeking = j.rules.Select.step(j.states, sc.sel, name, index)
		within.seeking = !within.seeking
		if within.seeking && within.sel.empty() {
			*within = scope{}
			return unselected
		}
	}
	if sc.names && index < 0 && j.rules.DefaultNames {
		class := classOf(name)
		if j.seen |= class; class&j.leftOut != 0 {
			*within = scope{}
			return excluded
		}
	}
	if sc.seeking && !within.seeking {
		j.selected++
	}
	return counts
}

// at returns the position in the canonical form of what is at src[i].
func (j *jsonReader) at(i int) int { return len(j.out) + i - j.copied }

// flush copies the source up to i.
func (j *jsonReader) flush(i int) { j.cut(i, i) }

// cut copies the source up to from, and leaves out what is between from and to.
func (j *jsonReader) cut(from, to int) {
	j.out = append(j.out, j.src[j.copied:from]...)
	j.copied = to
}

// blanks skips insignificant space and leaves it to the caller to cut it.
func (j *jsonReader) blanks(i int) int {
	for i < len(j.src) && j.src[i] <= ' ' {
		switch j.src[i] {
		case ' ', '\n', '\r', '\t':
			i++
		default:
			return i
		}
	}
	return i
}

// next skips and cuts insignificant space, and returns where the next token begins.
func (j *jsonReader) next(i int) int {
	if i < len(j.src) && j.src[i] > ' ' {
		return i
	}
	return j.cutBlanks(i)
}

func (j *jsonReader) cutBlanks(i int) int {
	to := j.blanks(i)
	if to > i {
		j.cut(i, to)
	}
	if to == len(j.src) {
		return -1
	}
	return to
}

// value reads a value. kept tells whether anything of it counts; if not, it is for the
// caller to take it back out of the canonical form.
func (j *jsonReader) value(i int, sc *scope, depth int) (end int, kept bool) {
	if i < 0 || i == len(j.src) {
		return -1, false
	}
	switch c := j.src[i]; c {
	case '"':
		i, _ = j.text(i)
	case '{':
		if depth == maxDepth {
			return -1, false
		}
		return j.object(i, sc, depth+1)
	case '[':
		if depth == maxDepth {
			return -1, false
		}
		if sc == nil {
			return j.array(i, depth+1), true
		}
		return j.ruledArray(i, sc, depth+1)
	case 't':
		i = j.word(i, "true")
	case 'f':
		i = j.word(i, "false")
	case 'n':
		i = j.word(i, "null")
	default:
		if c != '-' && c-'0' > 9 {
			return -1, false
		}
		i = j.number(i)
	}
	return i, sc.counts()
}

func (j *jsonReader) word(i int, word string) int {
	if len(j.src)-i < len(word) || string(j.src[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// array reads an array within which everything counts.
func (j *jsonReader) array(i, depth int) int {
	src := j.src
	i = j.next(i + 1)
	if i < 0 {
		return -1
	}
	if src[i] == ']' {
		return i + 1
	}
	for {
		if i, _ = j.value(i, nil, depth); i < 0 {
			return -1
		}
		if i+1 < len(src) && src[i] == ',' && src[i+1] > ' ' {
			i++
			continue
		}
		if i = j.next(i); i < 0 {
			return -1
		}
		if src[i] == ']' {
			return i + 1
		}
		if src[i] != ',' {
			return -1
		}
		i = j.next(i + 1)
	}
}

// ruledArray reads an array within which not everything counts. Excluded elements
// vanish, unselected ones leave their place empty.
func (j *jsonReader) ruledArray(i int, sc *scope, depth int) (end int, kept bool) {
	i = j.next(i + 1)
	if i < 0 {
		return -1, false
	}
	if j.src[i] == ']' {
		return i + 1, sc.counts()
	}
	j.flush(i)
	begin := len(j.out)
	last := begin // after the last element that is kept, and its comma
	var within scope
	for index := 0; ; index++ {
		start, states := len(j.out), len(j.states)
		v := j.enter(sc, &within, nil, index)
		if i, kept = j.value(i, within.orNil(), depth); i < 0 {
			return -1, false
		}
		if i = j.next(i); i < 0 {
			return -1, false
		}
		j.states = j.states[:states]
		if v == counts && kept {
			j.flush(i)
			j.out = append(j.out, ',')
			last = len(j.out)
		} else {
			j.out, j.copied = j.out[:start], i
			if v != excluded {
				j.out = append(j.out, ',')
			}
		}
		j.copied = i + 1
		switch j.src[i] {
		case ',':
			if i = j.next(i + 1); i < 0 {
				return -1, false
			}
		case ']':
			j.out = j.out[:last]
			if last == begin {
				j.out = append(j.out, ']')
				return i + 1, sc.counts()
			}
			j.out[last-1] = ']'
			return i + 1, true
		default:
			return -1, false
		}
	}
}

// object reads an object. Its loop is the hot path of every key made of JSON: as a function of its own, the reading of a member
// made keys 1 to 3 % slower.
//
//gocyclo:ignore
//gocognit:ignore
func (j *jsonReader) object(i int, sc *scope, depth int) (end int, kept bool) {
	src := j.src
	begin := j.at(i) + 1
	if i = j.next(i + 1); i < 0 {
		return -1, false
	}
	if src[i] == '}' {
		return i + 1, sc.counts()
	}
	base := len(j.members)
	sorted, dropped := true, 0
	for {
		if src[i] != '"' {
			return -1, false
		}
		start := j.at(i)
		nameEnd, escaped := j.text(i)
		if nameEnd < 0 {
			return -1, false
		}
		nameLen := j.at(nameEnd) - start
		var name []byte // in canonical form
		var prefix uint64
		if escaped {
			j.flush(nameEnd)
			name = j.name(start, nameLen)
			prefix = namePrefix(name)
		} else {
			name = src[i+1 : nameEnd-1]
			prefix = j.sourcePrefix(i+1, nameEnd-1)
		}
		if len(j.members) > base && sorted {
			switch prev := &j.members[len(j.members)-1]; {
			case prev.prefix < prefix:
			case prev.prefix > prefix:
				sorted = false
			default:
				sorted = j.compareNames(prev.start, prev.nameLen, start, nameLen, nameEnd) < 0
			}
		}

		if nameEnd+1 < len(src) && src[nameEnd] == ':' && src[nameEnd+1] > ' ' {
			i = nameEnd + 1 // without the calls: this is the hot path
		} else if i = j.next(nameEnd); i < 0 || src[i] != ':' {
			return -1, false
		} else if i = j.next(i + 1); i < 0 {
			return -1, false
		}
		if sc == nil || sc.onlyNames() && !j.leavesOut(name) {
			if i, _ = j.value(i, nil, depth); i < 0 {
				return -1, false
			}
		} else {
			if i, kept = j.ruledMember(i, sc, name, start+nameLen, depth); i < 0 {
				return -1, false
			}
			if !kept {
				dropped++
			}
		}
		if n := len(j.members); n == cap(j.members) && n >= 1024 {
			// As many as will come if the rest of the text is like what has come: so many are not copied a dozen times.
			j.members = slices.Grow(j.members, (len(src)-i)/(i/n))
		}
		j.members = append(j.members, member{prefix: prefix, start: start, end: j.at(i), nameLen: nameLen})

		if i+1 < len(src) && src[i] == ',' && src[i+1] == '"' {
			i++
			continue
		}
		if i = j.next(i); i < 0 {
			return -1, false
		}
		if src[i] == '}' {
			break
		}
		if src[i] != ',' {
			return -1, false
		}
		if i = j.next(i + 1); i < 0 {
			return -1, false
		}
	}
	members := j.members[base:]
	j.members = j.members[:base]
	if depth == 1 && dropped < len(members) {
		j.otherwise = true
	}
	if !sorted && !j.sort(i, members) {
		return -1, false
	}
	if !sorted || dropped > 0 {
		j.arrange(i, begin, members, sorted)
	}
	return i + 1, dropped < len(members) || sc.counts()
}

// ruledMember reads the value of a member that the rules may have something to say
// about. If the member does not count it takes the value back out of the canonical
// form, but not the name, which ends there at nameEnd: that must not occur twice.
func (j *jsonReader) ruledMember(i int, sc *scope, name []byte, nameEnd, depth int) (end int, kept bool) {
	j.flush(i)
	states := len(j.states)
	var within scope
	v := j.enter(sc, &within, name, -1)
	i, kept = j.value(i, within.orNil(), depth)
	if i < 0 {
		return -1, false
	}
	j.states = j.states[:states]
	if v != counts || !kept {
		j.out, j.copied = j.out[:nameEnd], i
		return i, false
	}
	return i, true
}

// arrange writes the members of an object, which begins after begin in the canonical
// form and ends before src[i], one after the other, without the dropped ones. sorted says
// that they were in order from the start.
func (j *jsonReader) arrange(i, begin int, members []member, sorted bool) {
	var src, dst []byte
	shift := 0
	switch {
	case begin >= len(j.out):
		// Nothing of the object has been copied yet: take it from the source.
		shift = len(j.out) - j.copied
		src = j.src
		j.flush(begin - shift)
		dst = j.out
	case sorted:
		// Members only move towards the front, never over one that is still to move.
		j.flush(i)
		src, dst = j.out, j.out[:begin]
	default:
		j.flush(i)
		j.spare = append(j.spare[:0], j.out[begin:]...)
		src, dst, shift = j.spare, j.out[:begin], begin
	}
	for k := range members {
		m := &members[k]
		if m.isDropped() {
			continue
		}
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(dst, src[m.start-shift:m.end-shift]...)
	}
	j.out, j.copied = dst, i
}

// sort sorts the members of an object that ends before src[i]. It returns false if a
// name occurs twice.
func (j *jsonReader) sort(i int, members []member) bool {
	slices.SortFunc(members, func(a, b member) int {
		switch {
		case a.prefix < b.prefix:
			return -1
		case a.prefix > b.prefix:
			return 1
		}
		return j.compareNames(a.start, a.nameLen, b.start, b.nameLen, i)
	})
	for k := 1; k < len(members); k++ {
		a, b := &members[k-1], &members[k]
		if a.prefix == b.prefix && j.compareNames(a.start, a.nameLen, b.start, b.nameLen, i) == 0 {
			return false
		}
	}
	return true
}

// name returns the canonical name, between the quotes, of the member that begins at
// start in the canonical form. It must have been flushed.
func (j *jsonReader) name(start, nameLen int) []byte {
	return j.out[start+1 : start+nameLen-1]
}

// compareNames compares the names of two members, which end before src[i], by their
// UTF-16 code units (RFC 8785, section 3.2.3).
func (j *jsonReader) compareNames(aStart, aLen, bStart, bLen, i int) int {
	j.flush(i)
	return compareMemberNames(j.name(aStart, aLen), j.name(bStart, bLen))
}

// compareMemberNames compares two names in canonical form. They part at the first byte that differs, or at the escape
// that it is the second byte of: two escapes \u00 are in the order of their digits.
func compareMemberNames(a, b []byte) int {
	n := common(a, b)
	if backslashes := n - len(bytes.TrimRight(a[:n], `\`)); backslashes%2 != 0 {
		n--
	}
	if n == len(a) || n == len(b) {
		return cmp.Compare(len(a), len(b))
	}
	x, _ := nameByte(a[n:])
	y, _ := nameByte(b[n:])
	return cmp.Compare(utf16Rank(x), utf16Rank(y))
}

// utf16Rank ranks the bytes of UTF-8 texts so that these compare as if they were UTF-16. The
// order of code units is that of the UTF-8 bytes but for one thing: the characters above
// U+FFFF (lead bytes F0 and up) are written with surrogates, which come before U+E000 to
// U+FFFF (EE and EF).
func utf16Rank(c byte) byte {
	if c == 0xEE || c == 0xEF {
		return c + 0x10
	}
	return c
}

// nameByte returns the byte that a name in canonical form begins with, and the length
// of its escape. All that is escaped is ASCII.
func nameByte(name []byte) (c byte, n int) {
	if name[0] != '\\' {
		return name[0], 1
	}
	switch c := name[1]; c {
	case 'u':
		return hexDigit[name[4]]<<4 | hexDigit[name[5]], 6
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	default:
		return c, 2
	}
}

// namePrefix returns the first 8 bytes of the name that canonical stands for, ranked
// as UTF-16 demands and filled up with zeros: unequal prefixes compare as the names do.
func namePrefix(canonical []byte) (prefix uint64) {
	for shift := 56; shift >= 0 && len(canonical) > 0; shift -= 8 {
		c, n := nameByte(canonical)
		prefix |= uint64(utf16Rank(c)) << shift
		canonical = canonical[n:]
	}
	return prefix
}

const (
	everyByte = 0x0101010101010101
	highBits  = 0x8080808080808080
)

// sourcePrefix is namePrefix for the name src[from:to], which has no escapes.
func (j *jsonReader) sourcePrefix(from, to int) uint64 {
	if from+8 > len(j.src) {
		return namePrefix(j.src[from:to])
	}
	prefix := binary.BigEndian.Uint64(j.src[from:])
	if n := to - from; n < 8 {
		prefix &= ^uint64(0) << (64 - 8*n)
	}
	if prefix&highBits != 0 {
		return namePrefix(j.src[from:to])
	}
	return prefix
}

// text reads a string. escaped tells whether the source has escapes in it.
func (j *jsonReader) text(i int) (end int, escaped bool) {
	src := j.src
	i = plainRun(src, i+1)
	if i < len(src) && src[i] == '"' {
		return i + 1, false
	}
	return j.escapedText(i), true
}

// escapedText reads on from the first byte of a string that is not plain.
func (j *jsonReader) escapedText(i int) int {
	for ; i < len(j.src); i = plainRun(j.src, i) {
		switch j.src[i] {
		case '"':
			return i + 1
		case '\\':
			if i = j.escape(i); i < 0 {
				return -1
			}
		default: // a control character
			return -1
		}
	}
	return -1
}

// plainRun returns the index of the first byte from i on that does not stand for
// itself in a string: a quote, a backslash or a control character. It looks at eight
// bytes at a time; the lowest bit that is set in hits is exact, those above it need
// not be.
func plainRun(src []byte, i int) int {
	for ; i+8 <= len(src); i += 8 {
		x := binary.LittleEndian.Uint64(src[i:])
		quote := x ^ everyByte*'"'
		backslash := x ^ everyByte*'\\'
		hits := (quote-everyByte)&^quote | (backslash-everyByte)&^backslash | (x-everyByte*' ')&^x
		if hits &= highBits; hits != 0 {
			return i + bits.TrailingZeros64(hits)/8
		}
	}
	for ; i < len(src); i++ {
		if c := src[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

// escape reads the escape at src[i], and replaces it if it is not canonical.
func (j *jsonReader) escape(i int) int {
	if i+1 == len(j.src) {
		return -1
	}
	switch j.src[i+1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case '/':
		j.cut(i, i+1)
		return i + 2
	case 'u':
	default:
		return -1
	}
	r, end := j.codeUnit(i), i+6
	if r < 0 {
		return -1
	}
	if utf16.IsSurrogate(r) {
		if r = utf16.DecodeRune(r, j.codeUnit(end)); r == utf8.RuneError {
			return -1
		}
		end += 6
	}
	j.cut(i, end)
	if r < utf8.RuneSelf {
		j.out = appendJSONByte(j.out, byte(r))
	} else {
		j.out = utf8.AppendRune(j.out, r)
	}
	return end
}

// codeUnit reads the \uXXXX at src[i], or returns -1.
func (j *jsonReader) codeUnit(i int) (unit rune) {
	if i+6 > len(j.src) || j.src[i] != '\\' || j.src[i+1] != 'u' {
		return -1
	}
	for _, c := range j.src[i+2 : i+6] {
		if hexDigit[c] > 15 {
			return -1
		}
		unit = unit<<4 | rune(hexDigit[c])
	}
	return unit
}

const lowerHex = "0123456789abcdef"

// appendJSONText appends text as RFC 8785 writes it within a string (section 3.2.2.2).
func appendJSONText(dst, text []byte) []byte {
	for _, c := range text {
		dst = appendJSONByte(dst, c)
	}
	return dst
}

func appendJSONByte(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if c < ' ' {
		return append(dst, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
	}
	return append(dst, c)
}
