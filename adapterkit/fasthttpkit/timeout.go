package fasthttpkit

import (
	"strings"

	"github.com/idem-go/idem/adapterkit/internal/stack"
)

// IsLimited reports whether there is an outer TimeoutHandler of fasthttp: it runs what is inside it on a
// stack of its own, which begins in a function of TimeoutWithCodeHandler, wherever that was inlined.
func IsLimited() bool {
	return stack.Has(func(f string) bool { return strings.Contains(f, "TimeoutWithCodeHandler.") })
}
