package adapterkit

import "github.com/idem-go/idem/adapterkit/internal/stack"

// isByTimeoutHandler reports whether an [http.TimeoutHandler] inside the guard is answering: its handler may be running
// on. (If that has ended with a 503 of its own, it looks the same.) Echo's Timeout is one, too. An outer one is not on
// this stack: it runs what is inside it on another, that of its ServeHTTP.func1.
func isByTimeoutHandler() bool {
	return stack.Has(func(f string) bool { return f == "net/http.(*timeoutHandler).ServeHTTP" })
}
