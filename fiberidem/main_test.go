package fiberidem_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
	leak.VerifyTestMain(m,
		// One per process, started by the first response, for the Date field; it has no end.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// Sleeps for up to 10 s before it looks whether its server has stopped.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

// newEngine returns an engine with a store of its own and one user.
func newEngine(t testing.TB, observe ...func(core.Event)) *core.Engine {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	c := core.Config{Store: store, User: core.SharedByAllCallers()}
	if len(observe) > 0 {
		c.Observe = observerOf(observe[0])
	}
	return core.MustNew(c)
}

func newApp(config ...fiber.Config) *fiber.App {
	var c fiber.Config
	if len(config) > 0 {
		c = config[0]
	}
	c.DisableStartupMessage = true
	return fiber.New(c)
}

// service is an app behind a listener of its own.
type service struct {
	t      testing.TB
	addr   string
	client *http.Client
}

func serve(t testing.TB, app *fiber.App) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- app.Listener(ln) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	s := &service{t: t, addr: ln.Addr().String(), client: &http.Client{
		Transport:     transport,
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := app.ShutdownWithTimeout(time.Minute); err != nil {
			t.Error("shutdown:", err)
		}
		<-served
	})
	return s
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r reply) replayed() bool { return r.header.Get(core.ReplayedHeader) == "true" }

// send may be called in any goroutine. fields are names and values in turn.
func (s *service) send(method, path, body string, fields ...string) reply {
	req, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

func (s *service) post(path, body string, fields ...string) reply {
	s.t.Helper()
	r := s.send(http.MethodPost, path, body, fields...)
	require.NoError(s.t, r.err)
	return r
}

// postTwice expects the same answer to both requests, the second time as a replay or not.
func (s *service) postTwice(path string, status int, body string, replayed bool) {
	s.t.Helper()
	first, again := s.post(path, ""), s.post(path, "")
	require.Equal(s.t, status, first.status)
	require.Equal(s.t, body, first.body)
	require.Equal(s.t, status, again.status)
	require.Equal(s.t, body, again.body)
	require.Equal(s.t, withoutDate(first.header), withoutDate(again.header))
	require.Equal(s.t, replayed, again.replayed())
}

func withKey(key string) []string { return []string{"Idempotency-Key", key} }

// withoutDate drops what belongs to one message only.
func withoutDate(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Date")
	h.Del(core.ReplayedHeader)
	return h
}
