package canon

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// PathError is a fault in a path that was given to [CompilePaths].
type PathError struct {
	Path   string // as given
	Reason string
}

func (e *PathError) Error() string {
	return "path " + strconv.Quote(e.Path) + ": " + e.Reason
}

// Paths is a set of compiled paths. It never changes and is safe for concurrent use.
// A nil *Paths matches nothing.
//
// The paths form one automaton. A state is an index into segments and stands for "what
// comes next must match this segment"; all paths that have matched so far are followed
// side by side, without ever going back.
type Paths struct {
	segments []segment
	start    []int32
	single   []segment // the paths that match one segment, for pairs
}

type segmentKind uint8

const (
	literal   segmentKind = iota
	anyOne                // *
	anyNumber             // **
	accept                // after the last segment
)

type segment struct {
	kind  segmentKind
	name  string
	json  string // name as in canonical JSON, between the quotes
	index int    // name as an array index, or -1
}

// CompilePaths compiles paths into a set. The error joins a [*PathError] for each path
// that is faulty. No paths make a set that matches nothing.
//
// The segments of a path are separated by dots and matched exactly, in case too. `*`
// is exactly one segment, whether the member of an object or the element of an array;
// `**` is any number of segments, or none. A decimal number also names the element of
// an array, counted from 0. Within a segment `\.` is a dot, `\\` a backslash and `\*`
// an asterisk. An empty path, an empty segment, `**` at the end (which would mean
// everything below and the thing itself: leave it out), a backslash at the end or
// before any other character are faults.
func CompilePaths(paths []string) (*Paths, error) {
	p := new(Paths)
	var errs []error
	for _, path := range paths {
		segments, reason := compilePath(path)
		if reason != "" {
			errs = append(errs, &PathError{path, reason})
			continue
		}
		p.start = p.add(p.start, 0, int32(len(p.segments)), segments)
		p.segments = append(p.segments, segments...)
		if s, ok := singleSegment(segments); ok {
			p.single = append(p.single, s)
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return p, nil
}

func compilePath(path string) (segments []segment, reason string) {
	if path == "" {
		return nil, "the path is empty"
	}
	var name []byte
	escaped := false // the segment holds an escape, so that it is no wildcard
	end := func() bool {
		s := segment{kind: literal, name: string(name), index: -1}
		switch {
		case len(name) == 0:
			return false
		case !escaped && s.name == "*":
			s.kind = anyOne
		case !escaped && s.name == "**":
			s.kind = anyNumber
			if n := len(segments); n > 0 && segments[n-1].kind == anyNumber {
				return true // twice any number is any number
			}
		default:
			s.json = string(appendJSONText(nil, name))
			if n, err := strconv.Atoi(s.name); err == nil && strconv.Itoa(n) == s.name && n >= 0 {
				s.index = n
			}
		}
		segments = append(segments, s)
		name, escaped = name[:0], false
		return true
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; c {
		case '.':
			if !end() {
				return nil, "a segment is empty"
			}
			name = name[:0]
		case '\\':
			i++
			if i == len(path) {
				return nil, "a backslash at the end escapes nothing"
			}
			if !strings.ContainsRune(`.\*`, rune(path[i])) {
				return nil, `a backslash may only come before '.', '*' and another backslash`
			}
			escaped = true
			name = append(name, path[i])
		default:
			name = append(name, c)
		}
	}
	if !end() {
		return nil, "a segment is empty"
	}
	if segments[len(segments)-1].kind == anyNumber {
		return nil, "** at the end selects nothing in particular"
	}
	return append(segments, segment{kind: accept, index: -1}), ""
}

// singleSegment returns the one segment that a path can be reduced to, if any, when
// each ** matches nothing.
func singleSegment(segments []segment) (single segment, ok bool) {
	n := 0
	for _, s := range segments {
		if s.kind == literal || s.kind == anyOne {
			single = s
			n++
		}
	}
	return single, n == 1
}

// add adds a state to those in states[from:], unless it is there. segments are the
// ones from the state on. A state before ** is also the one after it.
func (p *Paths) add(states []int32, from int, state int32, segments []segment) []int32 {
	if slices.Contains(states[from:], state) {
		return states
	}
	states = append(states, state)
	if segments[0].kind == anyNumber {
		states = p.add(states, from, state+1, segments[1:])
	}
	return states
}

// matchesPair reports whether the decoded name of a pair is on one of the paths.
func (p *Paths) matchesPair(name []byte) bool {
	if p == nil {
		return false
	}
	for i := range p.single {
		if s := &p.single[i]; s.kind == anyOne || s.name == string(name) {
			return true
		}
	}
	return false
}

// frame is a set of states: a part of a stack of them.
type frame struct {
	from, to int
}

func (f frame) empty() bool { return f.from == f.to }

// begin pushes the states that a JSON text starts in.
func (p *Paths) begin(stack []int32) ([]int32, frame) {
	if p == nil {
		return stack, frame{}
	}
	from := len(stack)
	stack = append(stack, p.start...)
	return stack, frame{from, len(stack)}
}

// step pushes the states that follow those in at when the member with the name json,
// as in canonical JSON, is entered; or the array element with the index,
// unless that is -1. hit tells that a path ends there.
func (p *Paths) step(stack []int32, at frame, json []byte, index int) (_ []int32, next frame, hit bool) {
	from := len(stack)
	for i := at.from; i < at.to; i++ {
		state := stack[i]
		s := &p.segments[state]
		switch s.kind {
		case literal:
			if index >= 0 && s.index != index || index < 0 && s.json != string(json) {
				continue
			}
			state++
		case anyOne:
			state++
		}
		// A ** stays where it is, having taken the segment in.
		if p.segments[state].kind == accept {
			hit = true
			continue
		}
		stack = p.add(stack, from, state, p.segments[state:])
	}
	return stack, frame{from, len(stack)}, hit
}
