package adapterkit

import (
	"net/http"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// Answer writes r to w, with the header that [SetHeader] makes of w's.
func Answer(w http.ResponseWriter, r *adapter.Response) error {
	SetHeader(w.Header(), r)
	w.WriteHeader(r.Status)
	if len(r.Body) == 0 {
		if w, ok := w.(notes); ok {
			w.WriteHeaderNow()
		}
		return nil
	}
	_, err := w.Write(r.Body)
	return err
}

// SetHeader puts the header fields of r into h. They replace those of the same name,
// whatever their case, that h has already; those in r.Removed are deleted, others are left alone. If r has a body but no
// Content-Type, the client gets none either, as it did the first time. Content-Length is
// left to the server: a writer in between may yet compress the body.
func SetHeader(h http.Header, r *adapter.Response) {
	for _, name := range r.Removed {
		remove(h, name)
	}
	if r.Get("Content-Type") == "" && len(r.Body) > 0 {
		h["Content-Type"] = nil // else net/http would guess one
	}
	values := make([]string, len(r.Header)) // one allocation for all
	for i := 0; i < len(r.Header); {
		name, start := r.Header[i].Name, i
		for i < len(r.Header) && r.Header[i].Name == name {
			values[i] = r.Header[i].Value
			i++
		}
		if inHeader(r.Header[:start], name) {
			h[name] = append(h[name], values[start:i]...) // the same name in another case
			continue
		}
		remove(h, name)
		h[name] = values[start:i:i]
	}
	remove(h, "Content-Length")
}

// inHeader reports whether a field of that name, in whatever case, was already written.
func inHeader(fields []adapter.Field, name string) bool {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			return true
		}
	}
	return false
}

// remove removes all fields of that name. A handler that goes around Header.Set may have
// left one that is not in canonical form.
func remove(h http.Header, name string) {
	delete(h, name)
	for other := range h {
		if len(other) == len(name) && strings.EqualFold(other, name) {
			delete(h, other)
		}
	}
}

// BodyAllowed reports whether a response with this status has a body (RFC 9110, section 6.4.1).
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Replayed reports whether the response in w is a replay.
func Replayed(w http.ResponseWriter) bool { return w.Header().Get(core.ReplayedHeader) == "true" }
