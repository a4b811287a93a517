package fiberidem

import (
	"bytes"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
)

// before is the header of a response as it was before the handler. The Content-Type is apart, because
// fasthttp always has one.
type before struct {
	fields []core.Field
	text   []byte // names and values: fasthttp reuses its own memory
	media  []byte // the Content-Type
}

func (b *before) reset() {
	clear(b.fields)
	clear(b.text)
	clear(b.media)
	b.fields, b.text, b.media = b.fields[:0], b.text[:0], b.media[:0]
}

func (b *before) remember(h *fasthttp.ResponseHeader) {
	b.media = append(b.media, h.ContentType()...)
	h.VisitAll(func(name, value []byte) {
		if utils.UnsafeString(name) != fiber.HeaderContentType {
			b.fields = append(b.fields, core.Field{Name: b.copy(name), Value: b.copy(value)})
		}
	})
}

// copy returns a copy that is good until reset.
func (b *before) copy(s []byte) string {
	start := len(b.text)
	b.text = append(b.text, s...)
	return utils.UnsafeString(b.text[start:])
}

// restore makes h the header again that is remembered.
func (b *before) restore(h *fasthttp.ResponseHeader) {
	var names []string
	h.VisitAll(func(name, _ []byte) { names = append(names, string(name)) })
	for _, name := range names {
		h.Del(name)
	}
	for _, f := range b.fields {
		h.Add(f.Name, f.Value)
	}
	if !bytes.Equal(h.ContentType(), b.media) { // which now is the default one
		h.SetContentTypeBytes(b.media)
	}
}
