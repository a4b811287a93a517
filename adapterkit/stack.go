package adapterkit

import "runtime"

// OnStack reports whether is holds for the name of a function on the goroutine's stack. By it adapters find timeouts
// that answer while their handler runs on.
func OnStack(is func(function string) bool) bool {
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
