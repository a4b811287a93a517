package adaptertest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// megabyte is the body limit of a guard that sets none.
const megabyte = 1 << 20

// hostileCases: requests that are made to hurt whoever reads them. Their transcripts hold the
// keys, which are those of all adapters.
var hostileCases = []testCase{
	{
		name: "a form of 900 parts",
		why:  "a thousand is what mime/multipart reads of a form by default, and so do frameworks: as many are read through every adapter alike",
		steps: []step{
			ask{parts("b1", 900, "1"), created, ""},
			ask{parts("b2", 900, "1"), replayed, ""},
			ask{parts("b1", 900, "2"), created, ""},
		},
	},
	{
		name:  "a form of 5,000 parts",
		why:   "a framework that reads forms in front of everybody (Fiber) may refuse this one; whoever takes it must tell two of them apart",
		loose: true,
		steps: []step{
			asTheServerTakesIt(parts("b1", 5000, "1"), parts("b1", 5000, "2")),
		},
	},
	{
		name:  "a query as long as the server takes",
		why:   "a query has no limit but the server's: all of it counts, to its last byte",
		loose: true,
		steps: []step{then(longestQuery)},
	},
}

func form(body string) request {
	return request{body: body, media: "application/x-www-form-urlencoded"}
}

// parts is a multipart form of n fields, of which the last has the value.
func parts(boundary string, n int, value string) request {
	var b strings.Builder
	for i := range n {
		of := ""
		if i == n-1 {
			of = value
		}
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=\"%d\"\r\n\r\n%s\r\n", boundary, i, of)
	}
	return request{body: b.String() + "--" + boundary + "--\r\n", media: "multipart/form-data; boundary=" + boundary}
}

// asTheServerTakesIt sends a request twice, then one that differs in a single byte, if the
// application without guards takes them; else the guarded one must not take them either.
func asTheServerTakesIt(r, other request) step {
	return then(func(s *env) {
		s.Helper()
		if !s.takes(r) {
			sendTruncated{r}.do(s)
			return
		}
		ask{r, created, ""}.do(s)
		ask{r, replayed, ""}.do(s)
		ask{other, created, ""}.do(s)
	})
}

// longestQuery finds out by halves how long a query may be, and sends two of that length.
func longestQuery(s *env) {
	s.Helper()
	query := func(n int, last string) request {
		return request{target: "/orders?q=" + strings.Repeat("x", n) + last}
	}
	takes, refuses := 0, 2*megabyte
	for refuses-takes > 1 {
		if n := (takes + refuses) / 2; s.takes(query(n, "1")) {
			takes = n
		} else {
			refuses = n
		}
	}
	if takes < 1000 {
		s.Fatalf("the server takes queries of %d bytes", takes)
	}
	asTheServerTakesIt(query(takes, "1"), query(takes, "2")).do(s)
}

// takes reports whether the application without guards hands r to its handler. It has its time for that, also where the suite is
// in a hurry: who is slow has not refused.
func (s *env) takes(r request) bool {
	s.Helper()
	r = r.orDefaults()
	c := s.dial(s.bare)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	before := s.bareProbe.count()
	c.send(r)
	_, err := c.receive(r.method) // who refuses a large request may close the connection before it is sent
	if stuck, ok := errors.AsType[net.Error](err); ok && stuck.Timeout() {
		s.Fatalf("%s: no response without a guard: %v", r.method, err)
	}
	return s.bareProbe.count() > before
}
