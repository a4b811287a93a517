package sortedparams

import "strings"

// reader reads the text of a body. rest is what is left to read.
type reader struct{ rest string }

// take skips text, if that comes next.
func (r *reader) take(text string) (taken bool) {
	r.rest, taken = strings.CutPrefix(r.rest, text)
	return taken
}

// takeUntil skips to the end of the next occurrence of end, and returns what stands before it.
func (r *reader) takeUntil(end string) (text string, taken bool) {
	text, rest, taken := strings.Cut(r.rest, end)
	if taken {
		r.rest = rest
	}
	return text, taken
}

// skipSpace skips white space, which is the same in JSON and XML.
func (r *reader) skipSpace() {
	i := 0
	for i < len(r.rest) && isSpace(r.rest[i]) {
		i++
	}
	r.rest = r.rest[i:]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
