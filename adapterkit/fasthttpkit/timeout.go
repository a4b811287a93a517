package fasthttpkit

import (
	"strings"

	"github.com/idem-go/idem/adapterkit/internal/stack"
)

// IsLimited reports whether fasthttp's TimeoutHandler is in front: it runs what is behind it on a
// stack of its own, which begins in a function of TimeoutWithCodeHandler, wherever that was inlined.
func IsLimited() bool {
	return stack.Has(func(f string) bool { return strings.Contains(f, "TimeoutWithCodeHandler.") })
}
