package adapterkit

import (
	"errors"
	"io"
	"net/http"
	"reflect"
)

// originOf says where a body comes from. It is sent if it yields what the server receives, or what a guard or Verify has received;
// decoded, if that, or the body, is a replacement: decompressed, decrypted or buffered. The server's types are not exported. originOf
// is called only for a body with a Content-Encoding, or whose length is not that of the request.
func originOf(body io.Reader) (sent, decoded bool) {
	for v := reflect.ValueOf(body); v.IsValid(); {
		switch v.Type().String() {
		case "*http.body", "*http.http2requestBody", "*http2.requestBody":
			return true, false
		case "*adapterkit.lentBody":
			return true, v.Elem().FieldByName("decoded").Bool()
		case "*http.expectContinueReader", "*http.maxBytesReader", "*adapterkit.count",
			"*middleware.limitedReader", // Echo's BodyLimit
			"*request.BodyWrapper":      // otelhttp
			v = within(v.Elem())
		default:
			return false, true
		}
	}
	return false, true
}

// within returns the reader that a struct reads from.
func within(v reflect.Value) reflect.Value {
	for _, field := range v.Fields() {
		if field.Kind() == reflect.Interface && field.Type().Implements(reader) {
			return field.Elem()
		}
	}
	return reflect.Value{}
}

var reader = reflect.TypeFor[io.Reader]()

// isSent reports whether a body yields what the server receives, so that its length is that of the
// request.
func isSent(body io.Reader) bool {
	sent, _ := originOf(body)
	return sent
}

// isClosed reports whether err is that of a closed body. HTTP/2 does not export its own.
func isClosed(err error) bool {
	return errors.Is(err, http.ErrBodyReadAfterClose) || err != nil && err.Error() == "body closed by handler"
}
