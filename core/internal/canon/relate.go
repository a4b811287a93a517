package canon

// Covers reports whether path matches everything that within matches, or something above it.
// Both are well-formed. Where it is not sure (within has a `**` that path has not), it says no.
func Covers(path, within string) bool {
	return covers(steps(path), steps(within))
}

// steps returns the segments of a path, without what comes after the last.
func steps(path string) []segment {
	s, _ := compilePath(path)
	return s[:max(len(s)-1, 0)]
}

func covers(p, w []segment) bool {
	switch {
	case len(p) == 0:
		return true
	case p[0].kind == anyNumber:
		return covers(p[1:], w) || len(w) > 0 && covers(p, w[1:])
	case len(w) == 0 || w[0].kind == anyNumber:
		return false
	case p[0].kind == anyOne:
		return covers(p[1:], w[1:])
	}
	return p[0].name == w[0].name && covers(p[1:], w[1:]) // a `*` has no name
}

// Touch reports whether a value that one of the paths matches can be, hold, or be in, a value
// that the other matches. Both are well-formed.
func Touch(a, b string) bool {
	return touch(steps(a), steps(b))
}

func touch(a, b []segment) bool {
	switch {
	case len(a) == 0 || len(b) == 0, a[0].kind == anyNumber || b[0].kind == anyNumber:
		return true // below a `**` there can be anything
	case a[0].kind == literal && b[0].kind == literal && a[0].name != b[0].name:
		return false
	}
	return touch(a[1:], b[1:])
}

// NeverCounts reports whether path matches nothing but a name that [Rules.DefaultNames] leaves out whatever else there is.
func NeverCounts(path string) bool {
	s := steps(path)
	return len(s) == 1 && s[0].kind == literal && classOf([]byte(s[0].name))&(stamps|shortStamp) != 0
}
