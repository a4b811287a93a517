package ginidem_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/ginidem"
)

// compressing compresses as gin-contrib/gzip does: what it does about a response is
// decided at the first write, by the status that it was told.
type compressing struct {
	gin.ResponseWriter
	to     *gzip.Writer
	status int
}

func compress(c *gin.Context) {
	if c.GetHeader("Accept-Encoding") != "gzip" {
		return
	}
	c.Header("Content-Encoding", "gzip")
	w := &compressing{c.Writer, gzip.NewWriter(c.Writer), 0}
	c.Writer = w
	c.Next()
	if w.status < 400 && w.Size() > 0 {
		_ = w.to.Close()
	}
}

func (w *compressing) WriteHeader(status int) {
	w.status = status
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

func (w *compressing) Write(b []byte) (int, error) {
	w.Header().Del("Content-Length")
	if w.status >= 400 {
		w.Header().Del("Content-Encoding")
		return w.ResponseWriter.Write(b)
	}
	return w.to.Write(b)
}

func (w *compressing) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func TestCompressionOutside(t *testing.T) {
	text := strings.Repeat("abc", 1000)
	for _, status := range []int{200, 201, 422} {
		engine := gin.New()
		engine.Use(compress)
		n := 0
		engine.POST("/x", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) {
			n++
			c.String(status, text)
		})
		server := httptest.NewServer(engine)
		t.Cleanup(server.Close)
		transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
		for i, accept := range []string{"gzip", "", "gzip"} {
			r, err := http.NewRequest("POST", server.URL+"/x", nil)
			require.NoError(t, err)
			r.Header.Set("X-User", "alice")
			r.Header.Set("Accept-Encoding", accept)
			resp, err := transport.RoundTrip(r)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, status, resp.StatusCode)
			if accept == "gzip" && status < 400 {
				require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"), i)
				plain, err := gzip.NewReader(bytes.NewReader(body))
				require.NoError(t, err)
				body, err = io.ReadAll(plain)
				require.NoError(t, err)
			} else {
				require.Empty(t, resp.Header["Content-Encoding"], i)
			}
			require.Equal(t, text, string(body))
		}
	}
}

func TestAStatusWithoutABodyIsSent(t *testing.T) {
	engine := gin.New()
	written := false
	engine.Use(func(c *gin.Context) {
		c.Next()
		written = c.Writer.Written()
	})
	engine.POST("/x", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) { c.AbortWithStatus(201) })
	for _, again := range []bool{false, true} {
		w := post(engine, "/x", "")
		require.Equal(t, 201, w.Code)
		require.Equal(t, again, replayed(w))
		require.True(t, written)
	}
}

func TestReadFromAfterTheEnd(t *testing.T) {
	engine := gin.New()
	var left gin.ResponseWriter
	engine.POST("/x", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) {
		c.Writer.Flush()
		left = c.Writer
	})
	w := post(engine, "/x", "")
	n, err := left.(io.ReaderFrom).ReadFrom(strings.NewReader("late"))
	require.Error(t, err)
	require.Zero(t, n)
	require.Empty(t, w.Body.String())
}
