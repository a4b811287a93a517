package adapterkit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/idem-go/idem/core/adapter"
)

// CountBody returns a copy of r whose body counts the bytes that are read from it, so that guards and
// verifiers know what is missing. It returns r itself if it has no body, or one that counts already.
func CountBody(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody || countOf(r) != nil {
		return r
	}
	c := &count{Context: r.Context(), body: r.Body}
	counted := r.WithContext(c)
	counted.Body = c
	return counted
}

// count is a body that counts the bytes that are read from it. It is also a context, so that it is
// found whatever wraps the body.
type count struct {
	context.Context
	body io.ReadCloser
	read int64
}

type countKey struct{}

// Value returns the count itself for its key.
func (c *count) Value(key any) any {
	if key == (countKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Read reads from the body.
func (c *count) Read(p []byte) (n int, err error) {
	n, err = c.body.Read(p)
	c.read += int64(n)
	return n, err
}

// Close closes the body.
func (c *count) Close() error { return c.body.Close() }

func countOf(r *http.Request) *count {
	c, _ := r.Context().Value(countKey{}).(*count)
	return c
}

// isDecoded reports whether the header names a coding that does not count, because somebody has replaced the body's reader: the
// body is what it yields.
func (q *request) isDecoded() bool {
	if first(q.r.Header, "Content-Encoding") == "" {
		return false
	}
	body := q.r.Body
	if q.replaced {
		body = q.original
	}
	_, decoded := originOf(body)
	return decoded
}

// takeForm rebuilds a body that is gone from the form that an outer middleware has parsed. err is the
// result of reading what is left. The text differs from what was sent, but means the same.
func (q *request) takeForm(limit int64, err error) error {
	if err != nil && !errors.Is(err, adapter.ErrBodyConsumed) {
		return err
	}
	media, params, merr := mime.ParseMediaType(q.r.Header.Get("Content-Type"))
	if merr != nil {
		return err
	}
	var body []byte
	switch {
	case media == "application/x-www-form-urlencoded" && len(q.r.PostForm) > 0 && len(q.body) == 0:
		if !q.isAll(q.r.PostForm) {
			return adapter.ErrBodyConsumed
		}
		body = []byte(q.r.PostForm.Encode())
	case media == "multipart/form-data" && hasParts(q.r.MultipartForm) && !bytes.Contains(q.body, []byte("--"+params["boundary"])):
		// What may be left is after the last part.
		if body, err = writeForm(q.r.MultipartForm, params["boundary"], limit); err != nil {
			return err
		}
	default:
		return err
	}
	if q.knownLength() < 0 && int64(len(body)) > limit {
		return adapter.ErrBodyTooLarge
	}
	q.body, q.pooled = body, false
	return nil
}

// knownLength returns how many bytes were sent, if the form was parsed from those; else it is negative.
func (q *request) knownLength() int64 {
	if (q.r.Header.Get("Content-Encoding") != "" || q.r.Header.Get("Content-Length") == "") && !isSent(q.r.Body) {
		return -1 // it was decompressed, and the header may no longer say so
	}
	if q.r.ContentLength > 0 {
		return q.r.ContentLength
	}
	if c := countOf(q.r); c != nil && isSent(q.r.Body) {
		return c.read
	}
	return -1
}

// isAll reports whether form can be all of an urlencoded body: [url.ParseQuery] drops pairs that it can't read, and net/http a
// form that is too large.
func (q *request) isAll(form url.Values) bool {
	length := q.knownLength()
	if length < 0 {
		return true
	}
	shortest, longest := int64(-1), int64(-1) // one '&' less than there are pairs
	for name, values := range form {
		for _, value := range values {
			shortest += 1 + int64(len(name)+2*escapes(name, "%&+;=")+len(value)+2*escapes(value, "%&+;"))
			longest += 1 + int64(3*len(name)+1+3*len(value))
			if name == "" || value != "" {
				shortest++ // the '='
			}
		}
	}
	return shortest <= length && length <= longest
}

// escapes returns how many bytes of s must be escaped.
func escapes(s, special string) (n int) {
	for i := range len(s) {
		if strings.IndexByte(special, s[i]) >= 0 {
			n++
		}
	}
	return n
}

// hasParts is also false for the empty form that net/http leaves with a MultipartReader.
func hasParts(form *multipart.Form) bool { return form != nil && len(form.Value)+len(form.File) > 0 }

// writeForm writes a form whose files have no more than limit bytes.
func writeForm(form *multipart.Form, boundary string, limit int64) ([]byte, error) {
	size := int64(0)
	for _, files := range form.File {
		for _, file := range files {
			size += file.Size
		}
	}
	if size > limit {
		return nil, adapter.ErrBodyTooLarge
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	err := w.SetBoundary(boundary)
	for _, name := range slices.Sorted(maps.Keys(form.Value)) {
		for _, value := range form.Value[name] {
			err = errors.Join(err, w.WriteField(name, value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form.File)) {
		for _, file := range form.File[name] {
			err = errors.Join(err, writeFile(w, file))
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(adapter.ErrBodyConsumed, err)
	}
	return b.Bytes(), nil
}

func writeFile(w *multipart.Writer, file *multipart.FileHeader) error {
	part, err := w.CreatePart(file.Header)
	if err != nil {
		return err
	}
	content, err := file.Open()
	if err != nil {
		return err
	}
	_, err = io.Copy(part, content)
	return errors.Join(err, content.Close())
}
