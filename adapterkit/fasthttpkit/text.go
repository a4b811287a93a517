package fasthttpkit

import "unsafe"

// text is b as a string that shares its memory.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
