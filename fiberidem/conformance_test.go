package fiberidem_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/fiberidem"
)

var update = flag.Bool("update", false, "add to the transcripts of core/adaptertest what fiber can do and net/http cannot")

func TestConformance(t *testing.T) {
	harness := adaptertest.Harness{
		Name:     "fiber",
		Start:    startFiber,
		User:     func(name string) core.UserSource { return fiberidem.UserFromLocals(name) },
		Features: adaptertest.Features{NativeErrors: true, OuterErrors: true},
	}
	if *update {
		adaptertest.WriteTranscripts(t, harness, "../core/adaptertest/testdata/transcripts.txt", true)
		return
	}
	adaptertest.Run(t, harness)
}

func startFiber(tb testing.TB, app adaptertest.App) string {
	tb.Helper()
	f := fiber.New(fiber.Config{DisableStartupMessage: true})
	f.Use(recover.New())
	if app.Errors && !app.Unfinished {
		f.Use(fiberidem.Finish())
	}
	if app.Errors {
		f.Use(conformanceErrors)
	}
	f.Use(func(c *fiber.Ctx) error {
		if origin := c.Get("Origin"); app.AllowOrigin && origin != "" {
			c.Set("Access-Control-Allow-Origin", origin)
		}
		for _, field := range app.Outer {
			c.Set(field.Name, field.Value)
		}
		if login := c.Get("X-Login"); app.Login && login != "" {
			c.Locals("user", strings.Clone(login))
		}
		return c.Next()
	})
	var router fiber.Router = f
	if app.Group != "" {
		router = f.Group(app.Group)
	}
	if app.Guard != nil {
		router.Use(fiberidem.New(app.Guard))
	}
	for _, r := range app.Routes {
		var handlers []fiber.Handler
		if r.Guard != nil {
			handlers = append(handlers, fiberidem.New(r.Guard))
		}
		handlers = append(handlers, func(c *fiber.Ctx) error { return r.Behaviour(fiberCall{c}) })
		router.Add(r.Method, r.Pattern[len(app.Group):], handlers...)
	}

	return listen(tb, f)
}

// listen serves f, and returns its address. When tb ends, it waits until all connections are
// closed.
func listen(tb testing.TB, f *fiber.App) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	counted := &countingListener{Listener: listener}
	served := make(chan error, 1)
	go func() { served <- f.Listener(counted) }()
	tb.Cleanup(func() {
		// fasthttp looks for open connections each 100 ms: spare it that.
		counted.open.Wait()
		if err := f.Shutdown(); err != nil {
			tb.Error("shutdown:", err)
		}
		<-served
	})
	return listener.Addr().String()
}

// countingListener counts the connections that the server has not closed.
type countingListener struct {
	net.Listener
	open sync.WaitGroup
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{Conn: c, closed: sync.OnceFunc(l.open.Done)}, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// conformanceErrors is what houses with an envelope of their own have in front.
func conformanceErrors(c *fiber.Ctx) error {
	err := c.Next()
	if err == nil {
		return nil
	}
	status := fiber.StatusInternalServerError
	var failure *fiber.Error
	if errors.As(err, &failure) {
		status = failure.Code
	}
	contentType, body := adaptertest.RenderError(err.Error())
	c.Set(fiber.HeaderContentType, contentType)
	return c.Status(status).Send(body)
}

// fiberCall does what handlers for Fiber do.
type fiberCall struct{ c *fiber.Ctx }

func (c fiberCall) Context() context.Context { return c.c.UserContext() }

func (c fiberCall) Run() (*core.Run, bool) { return fiberidem.Run(c.c) }

func (c fiberCall) Header(name string) string { return c.c.Get(name) }

func (c fiberCall) Param(name string) string { return c.c.Params(name) }

func (c fiberCall) Query(name string) string { return c.c.Query(name) }

func (c fiberCall) Body() ([]byte, error) { return c.c.BodyRaw(), nil }

func (c fiberCall) Bind(v any) error { return c.c.BodyParser(v) }

func (c fiberCall) FormFile(field string) (string, []byte, error) {
	header, err := c.c.FormFile(field)
	if err != nil {
		return "", nil, err
	}
	file, err := header.Open()
	if err != nil {
		return "", nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	return header.Filename, content, err
}

func (c fiberCall) SetHeader(name, value string) { c.c.Set(name, value) }

func (c fiberCall) AddHeader(name, value string) { c.c.Response().Header.Add(name, value) }

func (c fiberCall) JSON(status int, v any) error { return c.c.Status(status).JSON(v) }

func (c fiberCall) Blob(status int, contentType string, body []byte) error {
	c.c.Set(fiber.HeaderContentType, contentType)
	return c.c.Status(status).Send(body)
}

func (c fiberCall) NoContent(status int) error {
	c.c.Status(status) // SendStatus would add a text
	return nil
}

func (c fiberCall) Write(status int, contentType string, _ bool, pieces ...string) error {
	c.c.Set(fiber.HeaderContentType, contentType)
	c.c.Status(status)
	for _, piece := range pieces {
		if _, err := c.c.WriteString(piece); err != nil {
			return err
		}
	}
	return nil
}

func (c fiberCall) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	c.c.Set(fiber.HeaderContentType, contentType)
	c.c.Status(status)
	c.c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		_ = write(w, func() { _ = w.Flush() }) // a client that has gone ends it
	})
	return nil
}

func (c fiberCall) EarlyHints(string) error { return errors.New("fasthttp sends no 103") }

func (c fiberCall) Upgrade(protocol string, talk func(net.Conn)) error {
	c.c.Set(fiber.HeaderConnection, "Upgrade")
	c.c.Set(fiber.HeaderUpgrade, protocol)
	c.c.Status(fiber.StatusSwitchingProtocols)
	c.c.Context().Hijack(talk)
	return nil
}

func (c fiberCall) Fail(status int, message string) error { return fiber.NewError(status, message) }
