package operations

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// allServices is what the stored keys of all services begin with.
const allServices = "idem:"

// parse reads a stored key. It returns false for one that is no operation's: see docs/records.md.
func (o *Operations) parse(key string) (op Operation, ok bool) {
	rest, ok := strings.CutPrefix(key, o.engine.Prefix)
	if ok && o.engine.Prefix == allServices && !strings.HasPrefix(rest, "U=") { // the next part is the service
		_, rest, ok = strings.Cut(rest, ":")
	}
	rest, isUser := strings.CutPrefix(rest, "U=")
	user, rest, isRoute := strings.Cut(rest, "M=") // '=' is in no part
	route, value, kind := cutPart(rest)
	if kind == 'S' { // the scope of a key
		_, value, kind = cutPart(value)
	}
	if !ok || !isUser || !isRoute || kind == 0 {
		return op, false
	}
	op.Digest, op.user, op.User, op.Token = canon.Digest(key), user, unescape(user), kind == 'T'
	op.Key, op.Route = key, unescape(route)
	op.Task = kind == 'K' && strings.HasPrefix(op.Route, "DO ")
	if kind == 'K' || kind == 'E' { // E: the id of a signed event
		op.clientKey = value
	}
	return op, true
}

// cutPart cuts a part at the next one, and returns the letter of that; zero if there is none.
func cutPart(s string) (part, rest string, kind byte) {
	part, rest, found := strings.Cut(s, "=")
	if !found || part == "" {
		return "", "", 0
	}
	return part[:len(part)-1], rest, part[len(part)-1]
}

func unescape(part string) string {
	if text, err := url.PathUnescape(part); err == nil {
		return text
	}
	return part
}

// isOf reports whether the operation is the user's, as it may be stored: plain or hashed, and behind the mark of a source, an issuer or a
// verified caller. In the stored form a '#' is a mark's, and a blank is what separates: those of users are escaped.
func (op *Operation) isOf(user string) bool {
	mark, id, marked := strings.Cut(op.user, "#")
	if !marked {
		return op.user == appendPart(user)
	}
	sum := sha256.Sum256([]byte(user))
	if hashed := base64.RawURLEncoding.EncodeToString(sum[:]); mark == "" && id == hashed || id == "#"+hashed {
		return true
	}
	if strings.HasPrefix(mark, "caller&") {
		_, id, _ = strings.Cut(id, "%20")
	}
	if strings.HasSuffix(mark, "iss") {
		_, id, _ = strings.Cut(id, "%20")
	}
	return mark != "" && id == appendPart(user)
}

func appendPart(s string) string { return string(canon.AppendPart(nil, s)) }

// cursor is where a list goes on: in a phase, on a page of the store, behind an operation.
type cursor struct {
	phase int
	page  string
	last  string // its digest, or, without an order, the digests of those of the page that were shown; empty: the page's beginning
}

// unseen returns what of the cursor's page the list has not shown.
func (c cursor) unseen(page []Operation, ordered bool) []Operation {
	if ordered {
		return page[1+slices.IndexFunc(page, func(op Operation) bool { return op.Digest == c.last }):]
	}
	shown := digests(c.last)
	return slices.DeleteFunc(page, func(op Operation) bool { return slices.Contains(shown, op.Digest) })
}

func (c cursor) String() string {
	return strconv.Itoa(c.phase) + "." + c.last + "." + base64.RawURLEncoding.EncodeToString([]byte(c.page))
}

// digests are those that a string of them has.
func digests(text string) []string {
	var each []string
	for part := range slices.Chunk([]byte(text), digestSize) {
		each = append(each, string(part))
	}
	return each
}

// digestSize is the length of [canon.Digest].
const digestSize = 16

func parseCursor(text string, phases int) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	phase, rest, _ := strings.Cut(text, ".")
	last, page, found := strings.Cut(rest, ".")
	raw, err1 := base64.RawURLEncoding.DecodeString(page)
	n, err2 := strconv.Atoi(phase)
	if !found || err1 != nil || err2 != nil || n < 0 || n >= phases {
		return c, store.ErrCursor
	}
	return cursor{n, string(raw), last}, nil
}
