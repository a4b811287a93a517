package fasthttpkit

import (
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"weak"
)

// Place is where a guard is mounted: what is the same for all requests that come there.
type Place struct {
	Route       string // in the spelling of all adapters; "": the path stands for it
	Mount       string // without a route: the pattern under which the guard is mounted, or ""
	Params      []Param
	Unescaped   bool // the framework has unescaped the path
	NamesAsSent bool // header names are not in canonical form
	Limited     bool // a timeout wraps the application, see [IsLimited]
}

// Param is a path parameter: its name in keys, and the framework's own name for it.
type Param struct{ Name, Native string }

// Places keeps a place of type P for each *R, the routes of a framework whose contexts are of type C. The framework makes one for
// each method and pattern, and keeps it for as long as the application lives. Places is safe for concurrent use, and must not be
// copied.
type Places[C, R, P any] struct {
	Route func(C) *R
	// Find finds the place that a request has come to. It is not lasting if the framework makes its route up anew at each call.
	Find func(C) (place *P, lasting bool)

	m sync.Map
}

// Of returns the place that the request of c has come to. Its route is kept for as long as ps.
func (ps *Places[C, R, P]) Of(c C) *P {
	route := ps.Route(c)
	if p, ok := ps.m.Load(route); ok {
		return p.(*P)
	}
	p, lasting := ps.Find(c)
	if lasting {
		ps.m.Store(route, p)
	}
	return p
}

// Weakly is Of for places that outlive applications: it keeps no route.
func (ps *Places[C, R, P]) Weakly(c C) *P {
	route := ps.Route(c)
	key := weak.Make(route)
	if p, ok := ps.m.Load(key); ok {
		return p.(*P)
	}
	p, lasting := ps.Find(c)
	if lasting {
		if _, known := ps.m.LoadOrStore(key, p); !known {
			runtime.AddCleanup(route, func(key weak.Pointer[R]) { ps.m.Delete(key) }, key)
		}
	}
	return p
}

// SetRoute fills in Route and Params from one of Fiber's patterns and the names that Fiber has found in it; or Mount, if the
// guard is not mounted on the pattern's own route, but on a prefix. All stay empty if the parameters can't tell requests apart.
func (p *Place) SetRoute(pattern string, names []string, isPrefix bool) {
	spelled, params, ok := spell(pattern, names)
	switch {
	case !ok || p.Unescaped && strings.Contains(strings.TrimSuffix(spelled, "*"), "*"): // which can't be found in the path as sent
	case isPrefix:
		p.Mount = strings.TrimSuffix(spelled, "/") + "/*"
	default:
		p.Route, p.Params = spelled, params
	}
}

// unescape decodes a parameter once. ok is false for a value that is no valid escape.
func (p *Place) unescape(value string) (decoded string, ok bool) {
	if p.Unescaped || strings.IndexByte(value, '%') < 0 {
		return value, true
	}
	decoded, err := url.PathUnescape(value)
	return decoded, err == nil
}

// spell turns one of Fiber's patterns into the spelling of all adapters. names are
// the names that Fiber has found in it. ok is false if spell has not found the same
// ones, or if a name does not lead to one value: such parameters cannot tell requests apart.
func spell(pattern string, names []string) (spelled string, params []Param, ok bool) {
	var out strings.Builder
	stars, pluses := 0, 0
	for i := 0; i < len(pattern); {
		switch ch := pattern[i]; ch {
		case '\\': // takes the meaning from the next character
			if i++; i < len(pattern) {
				out.WriteByte(pattern[i])
				i++
			}
		case '*', '+':
			n := &stars
			if ch == '+' {
				n = &pluses
			}
			*n++
			params = append(params, Param{"*" + strconv.Itoa(stars+pluses), string(ch) + strconv.Itoa(*n)})
			out.WriteByte('*')
			i++
		case ':':
			name := pattern[i+1:]
			if end := strings.IndexAny(name, "?:\\/-.<"); end >= 0 {
				name = name[:end]
			}
			out.WriteString(pattern[i : i+1+len(name)])
			i += 1 + len(name)
			if name == "" {
				continue // a colon, then
			}
			params = append(params, Param{name, name})
			if strings.HasPrefix(pattern[i:], "<") {
				length := constraint(pattern[i:])
				if length == 0 {
					return "", nil, false
				}
				i += length
			}
			if i < len(pattern) && pattern[i] == '?' {
				i++
			}
		default:
			out.WriteByte(ch)
			i++
		}
	}
	if !slices.EqualFunc(params, names, func(p Param, name string) bool { return p.Native == name }) || !differ(names) {
		return "", nil, false
	}
	for i := range params {
		if stars+pluses == 1 && params[i].Name == "*1" {
			params[i].Name = "*"
		}
	}
	return out.String(), params, true
}

// differ reports whether no name occurs twice, in whatever case: to Fiber that may be one name.
func differ(names []string) bool {
	for i, name := range names {
		if slices.ContainsFunc(names[:i], func(before string) bool { return strings.EqualFold(before, name) }) {
			return false
		}
	}
	return true
}

// constraint returns the length of the <...> that s begins with, or 0 if its end is not
// clear. A '>' within is not followed by what may follow a parameter; a '/' within could
// as well belong to the path.
func constraint(s string) int {
	for i := range len(s) {
		switch {
		case s[i] == '/':
			return 0
		case s[i] == '>' && (i+1 == len(s) || strings.IndexByte("?:\\/-.*+", s[i+1]) >= 0):
			return i + 1
		}
	}
	return 0
}
