package fasthttpkit_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit/fasthttpkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
)

// A client that is cut off while it sends may never read the answer.
func TestAClientMayFinishSending(t *testing.T) {
	fasthttpkit.SetMaxDrain(t, time.Minute)
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	guard := core.MustNew(core.Config{Store: store, User: core.SharedByAllCallers()}).
		MustGuard(core.Policy{BodyLimit: 10, Key: core.Header(core.Required)})
	server := fasthttp.Server{StreamRequestBody: true, Handler: guarded(guard, "/", nil)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		require.NoError(t, server.Shutdown())
		<-served
	}()

	chunk := strings.Repeat("x", 5000)
	for length, parts := range map[string][]string{
		"Content-Length: 20000":      {chunk, chunk, chunk, chunk},
		"Transfer-Encoding: chunked": {"1388\r\n" + chunk, "\r\n1388\r\n", chunk, "\r\n0\r\n\r\n"},
	} {
		t.Run(length, func(t *testing.T) {
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			for _, part := range append([]string{"POST / HTTP/1.1\r\nHost: a\r\n" + length + "\r\n\r\n"}, parts...) {
				_, err := io.WriteString(conn, part)
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond) // in which a server that does not wait ends the connection
			}
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.NoError(t, r.Body.Close())
			require.Equal(t, 400, r.StatusCode)
			require.Contains(t, string(body), "key_missing")
		})
	}
}
