package adaptertest

import (
	"fmt"
	"strings"
)

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
