package load

import (
	"bufio"
	"encoding/json"
	"hash/maphash"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func reading(text string) *conn {
	return &conn{in: bufio.NewReader(strings.NewReader(text)), seed: maphash.MakeSeed()}
}

func TestAnswersAreRead(t *testing.T) {
	c := reading("HTTP/1.1 201 Created\r\nContent-Length: 3\r\nidempotent-replayed:  true \r\n\r\nabc" +
		"HTTP/1.1 409 Conflict\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n" +
		"HTTP/1.1 201 \r\nContent-Length: 3\r\n\r\nabc")
	first, err := c.read()
	require.NoError(t, err)
	assert.Equal(t, answer{status: 201, replayed: true, body: maphash.String(c.seed, "abc")}, first)
	second, err := c.read()
	require.NoError(t, err)
	assert.Equal(t, answer{status: 409, retryAfter: true, body: maphash.String(c.seed, "")}, second)
	third, err := c.read()
	require.NoError(t, err)
	assert.Equal(t, answer{status: 201, body: first.body}, third)
	_, err = c.read()
	require.Error(t, err, "the connection has ended")
}

func TestWhatIsNoAnswerIsAnError(t *testing.T) {
	for _, text := range []string{
		"", "\n", "\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/2 201 x\r\n\r\n", "201\r\n\r\n",
		"HTTP/1.1 201 Created\r\n\r\n", // no length
		"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 201 Created\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 201 Created\r\nContent-Length: 1000000000\r\n\r\n",
		"HTTP/1.1 201 Created\r\nContent-Length: x\r\n\r\n",
		"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nabc",
		"HTTP/1.1 201 Created\r\nno field\r\n\r\n",
		"HTTP/1.1 201 Created\r\n" + strings.Repeat("x", 1<<17),
	} {
		_, err := reading(text).read()
		assert.Error(t, err, "%.60q", text)
	}
}

func TestRequestsAreHTTP(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() {
		c := &conn{net: there, in: bufio.NewReader(there), seed: maphash.MakeSeed(), head: []byte(
			"POST /operations HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\nIdempotency-Key: k-")}
		for operation := range uint64(2) {
			_, _ = c.send(operation * 12345678901) // how it ends does not matter here
		}
	}()
	in := bufio.NewReader(here)
	for _, want := range []struct {
		key       string
		operation float64
	}{{"k-0", 0}, {"k-12345678901", 12345678901}} {
		r, err := http.ReadRequest(in)
		require.NoError(t, err)
		assert.Equal(t, want.key, r.Header.Get("Idempotency-Key"))
		var body map[string]any
		require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		assert.Equal(t, want.operation, body["operation"])
		_, err = here.Write([]byte("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"))
		require.NoError(t, err)
	}
	for _, operation := range []uint64{0, 1, 999, 1<<64 - 1} {
		assert.Len(t, appendBody(nil, operation), bodySize)
		assert.True(t, json.Valid(appendBody(nil, operation)))
	}
}
