package backend

import (
	"net"
	"strconv"
)

// reserve keeps other tests, of this process and of others, from taking a port. It does so by
// an abstract socket of that name, which ends with the process at the latest.
func reserve(port int) (release func(), ok bool) {
	l, err := net.Listen("unix", "@idem-backend-"+strconv.Itoa(port))
	if err != nil {
		return nil, false
	}
	return func() { l.Close() }, true
}
