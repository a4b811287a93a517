package fasthttpkit_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit/fasthttpkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/fibertest"
)

// A client that is cut off while it sends may never read the answer.
func TestAClientMayFinishSending(t *testing.T) {
	fasthttpkit.SetMaxDrain(t, time.Minute)
	guard := core.MustNew(core.Config{User: core.SharedByAllCallers()}).
		MustGuard(core.Policy{BodyLimit: 10, Key: core.Header(core.Required)})
	server := fasthttp.Server{StreamRequestBody: true, Handler: guarded(guard, "/", nil)}
	addr := fibertest.Listen(t, server.Serve, server.Shutdown)

	chunk := strings.Repeat("x", 5000)
	for length, parts := range map[string][]string{
		"Content-Length: 20000":      {chunk, chunk, chunk, chunk},
		"Transfer-Encoding: chunked": {"1388\r\n" + chunk, "\r\n1388\r\n", chunk, "\r\n0\r\n\r\n"},
	} {
		t.Run(length, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer conn.Close()
			for _, part := range append([]string{"POST / HTTP/1.1\r\nHost: a\r\n" + length + "\r\n\r\n"}, parts...) {
				_, err := io.WriteString(conn, part)
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond) // in which a server that does not wait ends the connection
			}
			r := fibertest.ReadReply(t, bufio.NewReader(conn))
			require.Equal(t, 400, r.Status)
			require.Equal(t, "key_missing", r.Code())
		})
	}
}
