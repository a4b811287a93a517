package fasthttpkit

import (
	"io"
	"reflect"
)

// isReceived reports whether a stream is the server's own, and no replacement. Its type is not exported.
func isReceived(stream io.Reader) bool {
	return reflect.TypeOf(stream).String() == "*fasthttp.requestStream"
}

// isBegun reports whether a stream is the server's own, and has been read from.
func isBegun(stream io.Reader) bool {
	if !isReceived(stream) {
		return false
	}
	read := reflect.ValueOf(stream).Elem().FieldByName("totalBytesRead")
	return !read.IsValid() || read.Int() > 0
}
