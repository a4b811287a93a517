//go:build !linux

package backend

import "sync"

// reserved are the ports of this process's tests.
var reserved sync.Map

// reserve keeps other tests of this process from taking a port.
func reserve(port int) (release func(), ok bool) {
	_, twice := reserved.LoadOrStore(port, struct{}{})
	return func() { reserved.Delete(port) }, !twice
}
