package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

// patience is how long a test waits for what must happen at some time.
const patience = 20 * time.Second

// client is the user ann. It writes down what it sees.
type client struct {
	t          *testing.T
	process    *program.Process
	http       *http.Client
	transcript []string
	counted    map[string]int // executions up to the last call of ran
}

func newClient(t *testing.T, p *program.Process) *client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, process: p, counted: map[string]int{},
		http: &http.Client{Transport: transport, Timeout: time.Minute, CheckRedirect: stay}}
}

// stay shows a redirect instead of following it.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// answer is a response, or the error that there was instead.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// member returns a member of a JSON body, "" if there is none.
func (a answer) member(name string) string {
	var members map[string]any
	if json.Unmarshal(a.body, &members) != nil || members[name] == nil {
		return ""
	}
	return fmt.Sprint(members[name])
}

// summary is the status, followed by the code of a refusal, or by "replayed".
func (a answer) summary() string {
	s := strconv.Itoa(a.status)
	if a.header.Get("Content-Type") == "application/problem+json" {
		s += " " + a.member("code")
	}
	if v := a.header.Values("Idempotent-Replayed"); len(v) > 0 {
		s += strings.ReplaceAll(fmt.Sprintf(" %v", v), "[true]", "replayed")
	}
	return s
}

// send posts body with fields, pairs of name and value. It may be called concurrently.
func (c *client) send(path, body string, fields ...string) answer {
	return c.sendWith(context.Background(), path, body, fields...)
}

func (c *client) sendWith(ctx context.Context, path, body string, fields ...string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.process.URL+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("X-User", "ann")
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			req.Header.Del(fields[i])
		} else {
			req.Header.Set(fields[i], fields[i+1])
		}
	}
	return c.do(req)
}

func (c *client) do(req *http.Request) answer {
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b, err}
}

// expect sends a request, and writes down and checks the summary of its answer.
func (c *client) expect(summary, path, body string, fields ...string) answer {
	c.t.Helper()
	a := c.send(path, body, fields...)
	require.NoError(c.t, a.err)
	c.transcript = append(c.transcript, fmt.Sprintf("%s %.40q %.60q: %s", path, body, fields, a.summary()))
	require.Equal(c.t, summary, a.summary(), "%s %.40q %q\n%.200s", path, body, fields, a.body)
	return a
}

// eventually repeats a request until its answer is summary.
func (c *client) eventually(summary, path, body string) answer {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		a := c.send(path, body)
		require.NoError(c.t, a.err)
		if a.summary() == summary {
			return a
		}
		require.True(c.t, time.Now().Before(deadline), "still %s", a.summary())
	}
}

// executions asks the program how often each handler has run.
func (c *client) executions() map[string]int {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodGet, c.process.URL+"/stats", nil)
	require.NoError(c.t, err)
	a := c.do(req)
	require.NoError(c.t, a.err)
	require.Equal(c.t, "200", a.summary())
	var stats struct {
		Executions map[string]int `json:"executions"`
	}
	require.NoError(c.t, json.Unmarshal(a.body, &stats))
	return stats.Executions
}

// ran checks that a route's handler has run n times since the last call for that route.
func (c *client) ran(n int, route string) {
	c.t.Helper()
	total := c.executions()[route]
	require.Equal(c.t, n, total-c.counted[route], "runs of %s", route)
	c.counted[route] = total
}

// running waits until a route's handler has begun n times since the last call of ran.
func (c *client) running(n int, route string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if c.executions()[route]-c.counted[route] >= n {
			return
		}
		require.True(c.t, time.Now().Before(deadline), "%s does not run", route)
	}
}

// form makes a multipart form with one file.
func form(t *testing.T, boundary, picture string) (contentType, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	require.NoError(t, w.SetBoundary(boundary))
	require.NoError(t, w.WriteField("title", "me"))
	part, err := w.CreateFormFile("picture", "me.png")
	require.NoError(t, err)
	_, err = part.Write([]byte(picture))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return w.FormDataContentType(), b.String()
}
