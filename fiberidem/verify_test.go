package fiberidem_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/sign/signtest"
)

func inEachMode(t *testing.T, test func(t *testing.T, config fiber.Config)) {
	for name, config := range modes {
		t.Run(name, func(t *testing.T) { test(t, config) })
	}
}

// wire is what r looks like on the connection.
func wire(t testing.TB, r *http.Request) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Write(&b))
	return b.String()
}

// Fields of which fasthttp shows one line, or puts together what was sent, count as sent.
func TestFieldsThatFasthttpKeepsApart(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		app := newApp(config)
		app.Use(func(c *fiber.Ctx) error {
			c.Cookies("a") // collects them all
			return c.Next()
		})
		app.Post("/", fiberidem.Verify(signtest.NewVerifier()))
		app.Post("/", func(c *fiber.Ctx) error { return c.SendString(c.Get("User-Agent")) })
		s := serve(t, app)
		fields := []string{"User-Agent", "ours/1", "Cookie", "a=1;b=2;  a=3", "Content-Type", ""}
		message := func() string { return wire(t, s.Signed(signtest.Demo, "/", "{}", fields...)) }
		assert.Equal(t, "ours/1", s.Exchange(message())[0].Body)
		for _, line := range []string{"User-Agent: theirs/1", "Cookie: c=4", "user-agent: ours/1", "content-type: text/plain"} {
			assert.Equal(t, "duplicate_header",
				s.Exchange(strings.Replace(message(), "\r\n\r\n", "\r\n"+line+"\r\n\r\n", 1))[0].Code(), line)
			assert.Equal(t, "duplicate_header", s.Exchange(strings.Replace(message(), "\r\n", "\r\n"+line+"\r\n", 1))[0].Code(), line)
		}
	})
}

// Signed are values without the white space around them: either fasthttp takes it away, or a handler would get what was not signed.
func TestTabsAroundSignedFields(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		app := newApp(config)
		app.Post("/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error {
			return c.SendString(fmt.Sprintf("%q %q %q", c.Get("X-User"), c.Get("Content-Type"), c.Get("Cookie")))
		})
		s := serve(t, app)
		const reached = `"bob" "application/json" "s=bob"`
		for name, value := range map[string]string{"X-User": "bob", "Content-Type": "application/json", "Cookie": "s=bob"} {
			message := wire(t, s.Signed(signtest.Demo, "/", "{}", "X-User", "bob", "Cookie", "s=bob"))
			require.Equal(t, reached, s.Exchange(message)[0].Body)
			message = wire(t, s.Signed(signtest.Demo, "/", "{}", "X-User", "bob", "Cookie", "s=bob"))
			message = strings.Replace(message, name+": "+value+"\r\n", name+": \t"+value+"\r\n", 1)
			require.Contains(t, message, "\t")
			if got := s.Exchange(message)[0]; keepsTabs() {
				require.Equal(t, "malformed", got.Code(), name)
			} else {
				require.Equal(t, reached, got.Body, name)
			}
		}
	})
}

// keepsTabs reports whether this version of fasthttp leaves tabs around values.
func keepsTabs() bool {
	var h fasthttp.RequestHeader
	_ = h.Read(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: a\r\nX-A: \tx\r\n\r\n")))
	return string(h.Peek("X-A")) == "\tx"
}

// What others in front have taken out of the header stays what it was.
func TestVerifyLeavesTheHeaderAlone(t *testing.T) {
	inEachMode(t, func(t *testing.T, config fiber.Config) {
		app := newApp(config)
		var before, after []string
		app.Use(func(c *fiber.Ctx) error {
			look := func() (seen []string) {
				c.Request().Header.VisitAll(func(name, value []byte) { seen = append(seen, string(name)+":"+string(value)) })
				return seen
			}
			tenant := c.Get("X-Tenant")
			before = append(look(), strings.Clone(tenant))
			err := c.Next()
			after = append(look(), strings.Clone(tenant))
			return err
		})
		app.Post("/", fiberidem.Verify(signtest.NewVerifier()), func(c *fiber.Ctx) error { return c.SendString("reached") })
		s := serve(t, app)
		for _, chunked := range []bool{false, true} {
			r := s.Signed(signtest.Demo, "/", "{}", "X-User", "bob")
			if chunked {
				r.ContentLength = -1
			}
			message := strings.Replace(wire(t, r), "\r\n", "\r\nA: \tx\r\nX-Tenant: alice\r\nX-Other: mallo\r\nX-Tenant: \tmallo\r\n", 1)
			require.Equal(t, "reached", s.Exchange(message)[0].Body)
			// The length of a body in chunks is known when it has been read.
			ignore := func(field string) bool {
				return strings.HasPrefix(field, "Content-Length:") || strings.HasPrefix(field, "Transfer-Encoding:")
			}
			require.Equal(t, slices.DeleteFunc(before, ignore), slices.DeleteFunc(after, ignore))
		}
	})
}
