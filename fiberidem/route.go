package fiberidem

import (
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"weak"

	"github.com/gofiber/fiber/v2"

	"github.com/idem-go/idem/adapterkit"
)

// place is where a guard is mounted: what is the same for all requests that come there.
type place struct {
	route       string // in the spelling of all adapters; "": the path stands for it
	mount       string // without a route: the pattern under which the guard is mounted, or ""
	params      []param
	unescaped   bool // Fiber has unescaped the path
	namesAsSent bool // header names are not in canonical form
	timeout     bool // Fiber's timeout, which lets handlers run on, is mounted on the route
	limited     bool // fasthttp's timeout stands around the application
	preforked   bool // this process is one of several
}

type param struct{ name, fiberName string }

// places holds a place for each *fiber.Route. Fiber makes one per method and pattern, and
// keeps it for as long as the app lives.
type places struct{ m sync.Map }

func (ps *places) of(c *fiber.Ctx) *place {
	route := c.Route()
	if p, ok := ps.m.Load(route); ok {
		return p.(*place)
	}
	p, lasting := newPlace(c.App(), route)
	if lasting {
		ps.m.Store(route, p)
	}
	return p
}

// pages holds places like places, but weakly: it outlives apps.
var pages sync.Map

// pageOf returns the place of a handler that belongs to no guard.
func pageOf(c *fiber.Ctx) *place {
	route := c.Route()
	key := weak.Make(route)
	if p, ok := pages.Load(key); ok {
		return p.(*place)
	}
	p, lasting := newPlace(c.App(), route)
	if lasting {
		if _, known := pages.LoadOrStore(key, p); !known {
			runtime.AddCleanup(route, func(key weak.Pointer[fiber.Route]) { pages.Delete(key) }, key)
		}
	}
	return p
}

// newPlace looks route up among all of app's. It is not lasting if it is not there: c.Route then makes
// it up anew at each call.
func newPlace(app *fiber.App, route *fiber.Route) (p *place, lasting bool) {
	config := app.Config()
	p = &place{unescaped: config.UnescapePath, namesAsSent: config.DisableHeaderNormalizing}
	all, matching := count(app.GetRoutes(), route), count(app.GetRoutes(true), route)
	// GetRoutes(true) leaves out what Use has registered. If Use and a method share handlers and
	// path, this may be either of them.
	spelled, params, ok := spell(route.Path, route.Params)
	switch {
	case !ok:
	case matching > 0 && matching == all:
		p.route, p.params = spelled, params
	default:
		p.mount = strings.TrimSuffix(spelled, "/") + "/*"
	}
	p.timeout, p.limited, p.preforked = slices.ContainsFunc(route.Handlers, isTimeout), isLimited(), fiber.IsChild()
	return p, all > 0
}

// isTimeout reports whether h is what the New of Fiber's middleware/timeout makes: it answers with
// fiber.ErrRequestTimeout, and lets the handler run on. (What NewWithContext makes does not.)
func isTimeout(h fiber.Handler) bool {
	f := runtime.FuncForPC(reflect.ValueOf(h).Pointer())
	return f != nil && strings.HasPrefix(f.Name(), "github.com/gofiber/fiber/v2/middleware/timeout.New.func")
}

// isLimited reports whether fasthttp's TimeoutHandler is in front: it runs what is behind it on a
// stack of its own.
func isLimited() bool {
	return adapterkit.OnStack(func(f string) bool { return strings.Contains(f, "TimeoutWithCodeHandler.func") })
}

// count says how many of routes are like r, as far as can be seen from outside of Fiber.
func count(routes []fiber.Route, r *fiber.Route) (n int) {
	for i := range routes {
		s := &routes[i]
		if s.Method == r.Method && s.Path == r.Path && len(s.Handlers) == len(r.Handlers) &&
			len(s.Handlers) > 0 && &s.Handlers[0] == &r.Handlers[0] {
			n++
		}
	}
	return n
}

// unescape decodes a parameter once. ok is false for a value that is no valid escape.
func (p *place) unescape(value string) (decoded string, ok bool) {
	if p.unescaped || strings.IndexByte(value, '%') < 0 {
		return value, true
	}
	decoded, err := url.PathUnescape(value)
	return decoded, err == nil
}

// spell turns one of Fiber's patterns into the spelling of all adapters. fiberNames are
// the names that Fiber has found in it. ok is false if spell has not found the same
// ones, or if a name does not lead to one value: such parameters cannot tell requests apart.
func spell(pattern string, fiberNames []string) (spelled string, params []param, ok bool) {
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
			params = append(params, param{"*" + strconv.Itoa(stars+pluses), string(ch) + strconv.Itoa(*n)})
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
			params = append(params, param{name, name})
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
	if len(params) != len(fiberNames) {
		return "", nil, false
	}
	for i := range params {
		if params[i].fiberName != fiberNames[i] {
			return "", nil, false
		}
		for _, before := range fiberNames[:i] {
			if strings.EqualFold(before, fiberNames[i]) {
				return "", nil, false
			}
		}
		if stars+pluses == 1 && params[i].name == "*1" {
			params[i].name = "*"
		}
	}
	return out.String(), params, true
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
