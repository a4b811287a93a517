package fiber3idem_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
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
		c.Observe = func(_ context.Context, e core.Event) { observe[0](e) }
	}
	return core.MustNew(c)
}

func requestCtx(method, uri, body string, fields ...string) *fasthttp.RequestCtx {
	ctx := new(fasthttp.RequestCtx)
	ctx.Init(&ctx.Request, nil, nil)
	ctx.Request.Header.SetMethod(method)
	ctx.Request.SetRequestURI(uri)
	for i := 0; i < len(fields); i += 2 {
		ctx.Request.Header.Add(fields[i], fields[i+1])
	}
	ctx.Request.SetBodyString(body)
	return ctx
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) replayed() bool { return r.header.Get(core.ReplayedHeader) == "true" }

// post sends a request to app, without a server. fields are names and values in turn.
func post(app *fiber.App, path string, fields ...string) reply {
	ctx := requestCtx("POST", path, "", fields...)
	app.Handler()(ctx)
	r := reply{ctx.Response.StatusCode(), http.Header{}, string(ctx.Response.Body())}
	for name, value := range ctx.Response.Header.All() {
		r.header.Add(string(name), string(value))
	}
	return r
}

// postTwice expects the same answer to both requests, the second time as a replay or not.
func postTwice(t *testing.T, app *fiber.App, status int, body string, replayed bool) {
	t.Helper()
	first, again := post(app, "/"), post(app, "/")
	require.Equal(t, status, first.status)
	require.Equal(t, body, first.body)
	require.Equal(t, status, again.status)
	require.Equal(t, body, again.body)
	require.Equal(t, replayed, again.replayed())
	again.header.Del(core.ReplayedHeader)
	require.Equal(t, first.header, again.header)
}

func readReply(t *testing.T, from io.Reader) reply {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(from), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return reply{resp.StatusCode, resp.Header, string(b)}
}
