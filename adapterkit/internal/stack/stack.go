// Package stack tells what has called. By it adapters find timeouts that answer while their handler runs on.
package stack

import "runtime"

// Has reports whether is holds for the name of a function on the goroutine's stack.
func Has(is func(function string) bool) bool {
	var callers [128]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if is(f.Function) {
			return true
		}
	}
	return false
}
