package fasthttpkit

import (
	"bufio"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// Whatever a header looks like: fields have as many values as lines were sent, and nothing
// panics.
func FuzzValues(f *testing.F) {
	for _, head := range []string{
		"Host: a\r\nContent-Type: b\r\n",
		"host: a\r\nHOST: b\r\nContent-type:\r\nCONTENT-TYPE: \t x \t\r\n",
		"Host: a\nX-Nonce: 1\nx-nonce: 2\nCookie: a=1\nCookie: b=2\n",
		"Host: a\r\nX-Nonce: 1\r\n 2\r\n\t3\r\nContent-Type: x\r\n y\r\nUser-Agent: u\r\nuser-agent: v\r\n",
		"Host:\n\r\n",
		"Host: a\r\nConnection: close\r\nConnection: keep-alive\r\nTrailer: X-A\r\nTransfer-Encoding: chunked\r\nX-Nonce\r\n: x\r\n",
	} {
		f.Add(head, false)
		f.Add(head, true)
	}
	names := []string{"Host", "Content-Type", "User-Agent", "Cookie", "X-Nonce", "X-Signature", "Idempotency-Key"}

	f.Fuzz(func(t *testing.T, head string, asSent bool) {
		var ctx fasthttp.RequestCtx
		if asSent {
			ctx.Request.Header.DisableNormalizing()
		}
		text := "POST /a?b HTTP/1.1\r\n" + head + "\r\n"
		if ctx.Request.Header.Read(bufio.NewReaderSize(strings.NewReader(text), len(text)+16)) != nil {
			return
		}
		sent, folded := lines(text)
		m := new(message)
		for range 2 { // the second time in what the first one has left
			m.start(&ctx, "POST", false)
			m.HeaderSize()
			for _, name := range names {
				if got := m.Values(name); !folded && m.trailer != errLines && // else it is refused
					len(got) != sent[strings.ToLower(name)] {
					t.Errorf("%s has the values %q, but was sent in %d lines", name, got, sent[strings.ToLower(name)])
				}
			}
			m.reset()
		}
	})
}

// lines counts the lines of each field, as somebody reads them who knows nothing of fasthttp.
func lines(text string) (count map[string]int, folded bool) {
	count = map[string]int{}
	first := true
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if first {
			first = false
			continue
		}
		if line == "" {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			folded = true
		}
		name, _, _ := strings.Cut(line, ":")
		count[strings.ToLower(name)]++
	}
	return count, folded
}
