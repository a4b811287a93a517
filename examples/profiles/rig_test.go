package profiles

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echo5idem"
	"github.com/idem-go/idem/fiber3idem"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/idemtest"
)

// handler answers the body of a request.
type handler func(body []byte) (status int, answer string)

// servers serve POST /tasks/:task on TCP, guarded, and return the URL.
var servers = map[string]func(*testing.T, *core.Guard, handler) string{
	"Gin": func(t *testing.T, g *core.Guard, h handler) string {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.POST("/tasks/:task", ginidem.New(g), func(c *gin.Context) {
			body, err := c.GetRawData()
			assert.NoError(t, err)
			status, answer := h(body)
			c.Data(status, "application/json", []byte(answer))
		})
		return listen(t, r)
	},
	"Echo v5": func(t *testing.T, g *core.Guard, h handler) string {
		e := echo.New()
		e.POST("/tasks/:task", func(c *echo.Context) error {
			body, err := io.ReadAll(c.Request().Body)
			assert.NoError(t, err)
			status, answer := h(body)
			return c.Blob(status, "application/json", []byte(answer))
		}, echo5idem.New(g))
		return listen(t, e)
	},
	"Fiber v3": func(t *testing.T, g *core.Guard, h handler) string {
		app := fiber.New()
		app.Post("/tasks/:task", fiber3idem.New(g), func(c fiber.Ctx) error {
			status, answer := h(c.Body())
			return c.Status(status).Type("json").SendString(answer)
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
		t.Cleanup(func() {
			assert.NoError(t, app.Shutdown())
			assert.NoError(t, <-served)
		})
		return "http://" + l.Addr().String()
	},
}

func listen(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// client is an agent, and the server it talks to.
type client struct {
	*testing.T
	engine  *idemtest.Engine
	url     string
	runs    atomic.Int64
	running chan struct{} // the handler of a request with "hold" waits there twice
	user    string
	task    string
}

func newClient(t *testing.T, p core.Policy, serve func(*testing.T, *core.Guard, handler) string) *client {
	c := &client{T: t, running: make(chan struct{}), user: "ann", task: "create"}
	c.engine = idemtest.New(t, core.Config{User: core.UserFromHeader("X-User")})
	c.url = serve(t, c.engine.MustGuard(p), c.handle)
	return c
}

// handle answers with the number of the run, and does what the request says.
func (c *client) handle(body []byte) (int, string) {
	request := struct {
		Hold   bool
		Status int             // of the answer; 0: 201
		Answer json.RawMessage // nil: the number of the run
	}{Status: 201}
	_ = json.Unmarshal(body, &request) // some have no body
	n := c.runs.Add(1)
	if request.Hold {
		<-c.running
		<-c.running
	}
	if request.Answer != nil {
		return request.Status, string(request.Answer)
	}
	return request.Status, `{"run": ` + strconv.FormatInt(n, 10) + `,"context":{"trace":"stored"}}`
}

// reply is what the client gets.
type reply struct {
	*client
	status int
	header http.Header
	body   string
}

// post sends a request; without a key if that is empty.
func (c *client) post(key, body string) reply {
	c.Helper()
	r, err := http.NewRequest(http.MethodPost, c.url+"/tasks/"+c.task, strings.NewReader(body))
	require.NoError(c, err)
	r.Header.Set("X-User", c.user)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(c, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(c, err)
	return reply{c, resp.StatusCode, resp.Header, string(answer)}
}

// whileRunning calls check while the handler holds a request.
func (c *client) whileRunning(key, body string, check func()) {
	first := make(chan reply, 1)
	go func() { first <- c.post(key, body) }()
	c.running <- struct{}{}
	check()
	c.running <- struct{}{}
	(<-first).ran(1)
}

// ran checks that the handler has answered, in its run of that number.
func (r reply) ran(n int64) {
	r.Helper()
	assert.Empty(r, r.header.Get(core.ReplayedHeader), r.body)
	assert.Empty(r, r.header.Get(core.RefusedHeader), r.body)
	assert.Equal(r, n, r.runs.Load())
}

// replays checks that it is the answer of first again.
func (r reply) replays(first reply) {
	r.Helper()
	assert.Equal(r, first.status, r.status)
	assert.Equal(r, "true", r.header.Get(core.ReplayedHeader))
	assert.Equal(r, first.body, r.body)
}

// refuses checks a refusal and its body.
func (r reply) refuses(status int, body string) {
	r.Helper()
	assert.Equal(r, status, r.status)
	assert.JSONEq(r, body, r.body)
	assert.Contains(r, r.header.Get("Content-Type"), "application/json")
	assert.NotEmpty(r, r.header.Get(core.RefusedHeader))
}
