package echo5idem

import (
	"net/http"
	"reflect"

	"github.com/labstack/echo/v5"

	"github.com/idem-go/idem/adapterkit"
)

// hostOf returns the host to which the routes of c belong, or "": that of [echo.NewVirtualHostHandler], if it is the
// server's handler, or that in the pattern of a mux further out. Which hosts the former knows can't be seen: for an Echo
// that is mounted on its own routes, every host is one.
func hostOf(c *echo.Context) string {
	r := c.Request()
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		if outer, ok := server.Handler.(*echo.Echo); ok && outer != c.Echo() && !isPlain(outer) {
			return r.Host
		}
	}
	if host := matchedHost(r); host != "" {
		return host
	}
	return adapterkit.HostOf(r)
}

// isPlain reports whether e chooses by no host: [echo.NewVirtualHostHandler] has put another function in the place of its own.
func isPlain(e *echo.Echo) bool { return plain != 0 && servesWith(e) == plain }

var plain = servesWith(echo.New())

// servesWith returns the code of the function by which e serves, or 0 if Echo no longer has it.
func servesWith(e *echo.Echo) uintptr {
	if f := reflect.ValueOf(e).Elem().FieldByName("serveHTTPFunc"); f.Kind() == reflect.Func {
		return f.Pointer()
	}
	return 0
}

// matchedHost returns the host in the pattern by which the last [http.ServeMux] on the way has chosen. In r.Pattern Echo has put
// its own, but the mux keeps the one that has matched, too.
func matchedHost(r *http.Request) string {
	if matched == nil {
		return ""
	}
	pattern := reflect.ValueOf(r).Elem().FieldByIndex(matched)
	if pattern.IsNil() {
		return ""
	}
	return pattern.Elem().FieldByName("host").String()
}

// matched is the field of a request that has that pattern, if net/http still has it: TestAHostNamedFurtherOutCounts fails
// when it has not.
var matched = func() []int {
	field, ok := reflect.TypeFor[http.Request]().FieldByName("pat")
	if !ok || field.Type.Kind() != reflect.Pointer {
		return nil
	}
	if host, ok := field.Type.Elem().FieldByName("host"); !ok || host.Type.Kind() != reflect.String {
		return nil
	}
	return field.Index
}()
