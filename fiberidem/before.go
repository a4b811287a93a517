package fiberidem

import (
	"bytes"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
)

// before is the header of a response as it was before the handler. What the handler leaves
// as it was is a middleware's, which sets it again on a replay. Content-Type is apart:
// that belongs to the body, and fasthttp always has one.
type before struct {
	lines []line
	text  []byte // names and values: fasthttp uses its own memory again
	media []byte // the Content-Type
}

// line says where in the text a field's name ends, and its value.
type line struct{ start, name, end int }

func (b *before) reset() {
	clear(b.text)
	clear(b.media)
	b.lines, b.text, b.media = b.lines[:0], b.text[:0], b.media[:0]
}

func (b *before) remember(h *fasthttp.ResponseHeader) {
	b.media = append(b.media, h.ContentType()...)
	h.VisitAll(func(k, v []byte) {
		if utils.UnsafeString(k) == fiber.HeaderContentType {
			return
		}
		start := len(b.text)
		b.text = append(append(b.text, k...), v...)
		b.lines = append(b.lines, line{start, start + len(k), len(b.text)})
	})
}

// restore makes h the header again that is remembered.
func (b *before) restore(h *fasthttp.ResponseHeader) {
	var names []string
	h.VisitAll(func(k, _ []byte) { names = append(names, string(k)) })
	for _, name := range names {
		h.Del(name)
	}
	for _, l := range b.lines {
		h.AddBytesKV(b.text[l.start:l.name], b.text[l.name:l.end])
	}
	if !bytes.Equal(h.ContentType(), b.media) { // which now is the default one
		h.SetContentTypeBytes(b.media)
	}
}

// drop returns fields, in their own memory, without those of before. The lines of one name
// stand together.
func (b *before) drop(fields []core.Field) []core.Field {
	if len(b.lines) == 0 {
		return fields
	}
	rest := fields[:0]
	for i := 0; i < len(fields); {
		start := i
		for i < len(fields) && fields[i].Name == fields[start].Name {
			i++
		}
		if same := fields[start:i]; !b.has(same) {
			rest = append(rest, same...)
		}
	}
	return rest
}

// has reports whether before has the same lines of the name that all of fields have.
func (b *before) has(fields []core.Field) bool {
	n := 0
	for _, l := range b.lines {
		if string(b.text[l.start:l.name]) != fields[0].Name {
			continue
		}
		if n == len(fields) || !bytes.Equal(b.text[l.name:l.end], utils.UnsafeBytes(fields[n].Value)) {
			return false
		}
		n++
	}
	return n == len(fields)
}
