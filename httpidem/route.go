package httpidem

import (
	"maps"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
)

// route is a pattern, taken apart.
type route struct {
	spelling string // in the spelling that all adapters share
	host     string
	path     string    // spelling without the host
	segments []segment // of the path, without a trailing wildcard
	tail     bool      // a wildcard for the rest of the path follows
}

// segment is what is between two slashes of a pattern.
type segment struct {
	literal string   // decoded; only if there are no names
	names   []string // of the parameters in it
}

// parsePattern takes a pattern of net/http, chi or gorilla apart. subtree says that a slash
// at the end stands for everything below it, as in a [http.ServeMux].
func parsePattern(pattern string, subtree bool) *route {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 && !strings.Contains(pattern[:i], "/") {
		pattern = strings.TrimLeft(pattern[i:], " \t") // the method is not part of the route
	}
	rt := new(route)
	if i := strings.IndexByte(pattern, '/'); i > 0 {
		rt.host, pattern = pattern[:i], pattern[i:]
	}

	var spelled strings.Builder
	for rest := strings.TrimPrefix(pattern, "/"); ; {
		text, after, more := cutSegment(rest)
		switch {
		case !more && (text == "*" || strings.HasPrefix(text, "{") && strings.HasSuffix(text, "...}")),
			!more && text == "" && subtree:
			rt.tail = true
			spelled.WriteString("/*")
		case !more && text == "{$}":
			rt.segments = append(rt.segments, segment{})
			spelled.WriteByte('/')
		default:
			var s segment
			spelled.WriteByte('/')
			s.names = spell(&spelled, text)
			if s.names == nil {
				s.literal = adapterkit.Unescape(text)
			}
			rt.segments = append(rt.segments, s)
		}
		if !more {
			break
		}
		rest = after
	}
	rt.path = spelled.String()
	rt.spelling = rt.host + rt.path
	return rt
}

// cutSegment cuts text at its first slash outside of braces: a chi pattern may have a
// regular expression in them.
func cutSegment(text string) (segment, rest string, more bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			depth--
		case '/':
			if depth <= 0 {
				return text[:i], text[i+1:], true
			}
		}
	}
	return text, "", false
}

// spell writes a segment with ":name" for "{name}" and "{name:regexp}", and returns the names.
func spell(w *strings.Builder, text string) (names []string) {
	depth, start := 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '{':
			if depth == 0 {
				start = i + 1
			}
			depth++
		case c == '}' && depth > 0:
			if depth--; depth == 0 {
				name, _, _ := strings.Cut(text[start:i], ":")
				names = append(names, name)
				w.WriteByte(':')
				w.WriteString(name)
			}
		case depth == 0:
			w.WriteByte(c)
		}
	}
	return names
}

// match finds the pattern in path. The pattern ends where the path ends, but something may
// come before it: prefix is how much. rest is what a trailing wildcard stands for.
func (rt *route) match(path string) (prefix int, rest string, ok bool) {
	for at := 0; at < len(path) && path[at] == '/'; {
		if rest, ok = rt.matchAt(path[at:]); ok {
			return at, rest, true
		}
		next := strings.IndexByte(path[at+1:], '/')
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return 0, "", false
}

func (rt *route) matchAt(path string) (rest string, ok bool) {
	more := true
	path = path[1:]
	for _, s := range rt.segments {
		if !more {
			return "", false
		}
		var text string
		text, path, more = strings.Cut(path, "/")
		if s.names == nil && text != s.literal && adapterkit.Unescape(text) != s.literal {
			return "", false
		}
	}
	return path, more == rt.tail
}

// patterns remembers the patterns that it has taken apart. Patterns come from the
// registrations of a router, so that there are no more of them than routes; maxPatterns is
// for routers that know no such bound.
type patterns struct {
	known atomic.Pointer[map[string]*route]
}

const maxPatterns = 1024

func (p *patterns) get(pattern string) *route {
	known := p.known.Load()
	if known != nil {
		if rt := (*known)[pattern]; rt != nil {
			return rt
		}
	}
	rt := parsePattern(pattern, true)
	grown := make(map[string]*route)
	if known != nil {
		if len(*known) >= maxPatterns {
			return rt
		}
		maps.Copy(grown, *known)
	}
	grown[pattern] = rt
	p.known.CompareAndSwap(known, &grown) // if another one was faster: next time
	return rt
}

// describe fills in route and parameters of a request from r.Pattern.
func (p *patterns) describe(r *http.Request, to *adapter.Request) {
	sent := adapterkit.SentPath(r)
	if r.Pattern == "" {
		to.Route, to.Unmatched = adapterkit.HostOf(r)+sent, true
		return
	}
	rt := p.get(r.Pattern)
	path := sent
	prefix, rest, ok := rt.match(path)
	if !ok {
		path = adapterkit.EscapedPath(r.URL) // an outer middleware has rewritten it
		prefix, rest, ok = rt.match(path)
	}
	host := rt.host
	if host == "" {
		host = adapterkit.HostOf(r)
	}
	switch {
	case !ok:
		to.Route, to.Unmatched, to.Mount = host+sent, true, rt.spelling
		return
	case prefix > 0:
		to.Route, to.Unmatched, to.Mount = host+path[:prefix]+rt.path, true, rt.host+"/*"+rt.path
	case host != rt.host:
		to.Route = host + rt.path
	default:
		to.Route = rt.spelling
	}
	for _, s := range rt.segments {
		for _, name := range s.names {
			to.PathParams = append(to.PathParams, adapter.Pair{Name: name, Value: r.PathValue(name)})
		}
	}
	if rt.tail {
		to.PathParams = append(to.PathParams, adapter.Pair{Name: "*", Value: adapterkit.Rest(rest)})
	}
}
