package adapter

import "strings"

// Response is an HTTP response: captured from a handler, replayed, or written in place of the handler's.
type Response struct {
	// Status is the final status code, never an informational one. (101 may be seen by
	// core.Policy.Failed and in events, for an upgraded connection, but is never stored.)
	Status int
	// Header holds the header fields in the order in which they are written. A name
	// may occur more than once; the lines of one name are together.
	Header []Field
	// Removed names fields that the response must not have: the handler has deleted what an outer middleware
	// had set.
	Removed []string
	// Body is the body as it was sent. It is nil for a response whose body was not
	// captured.
	Body []byte
}

// Field is one header field line.
type Field struct {
	Name, Value string
}

// Get returns the value of the first header field called name, compared without
// regard to case, or "".
func (r *Response) Get(name string) string {
	for _, f := range r.Header {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}
