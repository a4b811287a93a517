package fiber3idem_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/internal/fibertest"
	"github.com/idem-go/idem/sign/signtest"
)

// exchange sends bytes over a connection of its own, and nothing after them.
func exchange(t *testing.T, app *fiber.App, request string) fibertest.Reply {
	t.Helper()
	conn, err := net.Dial("tcp", serve(t, app).Addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	return fibertest.ReadReply(t, bufio.NewReader(conn))
}

// What Use has mounted runs for a request, too, that could not be read: it is not run, not verified, and answered by the ErrorHandler.
func TestRequestsThatCannotBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		status  int
	}{
		"too large": {"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 101\r\n\r\n" +
			strings.Repeat("x", 101), 413},
		"cut short": {"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 50\r\n\r\n" +
			strings.Repeat("x", 49), 400},
		"a broken chunk":       {"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", 400},
		"a header field of no": {"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nno\r\n\r\n", 400},
	} {
		for _, deep := range []int{0, 9} {
			t.Run(fmt.Sprint(name, deep), func(t *testing.T) {
				ran, events := 0, 0
				app := fiber.New(fiber.Config{BodyLimit: 100})
				for range deep {
					app.Use(func(c fiber.Ctx) error { return c.Next() })
				}
				guard := fibertest.NewEngine(t, func(e core.Event) {
					if e.Kind != core.StoreIsLocal {
						events++
					}
				}).MustGuard(core.ClientKey())
				app.Use("/orders", fiber3idem.New(guard), func(c fiber.Ctx) error { ran++; return c.SendStatus(201) })
				app.Use("/hooks", fiber3idem.Verify(signtest.NewVerifier()), func(c fiber.Ctx) error { ran++; return c.SendStatus(201) })
				for _, path := range []string{"/orders", "/hooks"} {
					require.Equal(t, tc.status, exchange(t, app, strings.Replace(tc.request, "/orders", path, 1)).Status)
				}
				require.Zero(t, ran)
				require.Zero(t, events)
				// The client tries again, and is heard.
				again := exchange(t, app, "POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx")
				require.Equal(t, 201, again.Status)
				require.False(t, again.Replayed())
				require.Equal(t, 1, ran)
			})
		}
	}
}
