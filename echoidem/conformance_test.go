package echoidem_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/echoidem"
)

var update = flag.Bool("update", false, "add to the transcripts of core/adaptertest what echo can do and net/http cannot")

func TestConformance(t *testing.T) {
	harness := adaptertest.Harness{
		Name:  "echo",
		Start: startEcho,
		User:  func(name string) core.UserSource { return echoidem.UserFromContext(name) },
		Features: adaptertest.Features{
			EarlyHints: true, Flush: true, ContextEnds: true, NativeErrors: true, OuterErrors: true,
			OuterBodyLimit: true, GroupRoutes: true, GlobalRoutes: true,
		},
	}
	if *update {
		adaptertest.WriteTranscripts(t, harness, "../core/adaptertest/testdata/transcripts.txt", true)
		return
	}
	adaptertest.Run(t, harness)
}

func startEcho(tb testing.TB, app adaptertest.App) string {
	tb.Helper()
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.Use(conformanceRecovery)
	if app.Errors && !app.Unfinished {
		e.Use(echoidem.Finish())
	}
	if app.Errors {
		e.Use(conformanceErrors)
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if app.BodyLimit > 0 {
				c.Request().Body = http.MaxBytesReader(c.Response(), c.Request().Body, app.BodyLimit)
			}
			if origin := c.Request().Header.Get("Origin"); app.AllowOrigin && origin != "" {
				c.Response().Header().Set("Access-Control-Allow-Origin", origin)
			}
			for _, f := range app.Outer {
				c.Response().Header().Set(f.Name, f.Value)
			}
			if login := c.Request().Header.Get("X-Login"); app.Login && login != "" {
				c.Set("user", login)
			}
			return next(c)
		}
	})
	add := e.Add
	if app.Group == "" {
		if app.Guard != nil {
			e.Use(echoidem.New(app.Guard))
		}
	} else {
		var guards []echo.MiddlewareFunc
		if app.Guard != nil {
			guards = append(guards, echoidem.New(app.Guard))
		}
		add = e.Group(app.Group, guards...).Add
	}
	for _, r := range app.Routes {
		var guards []echo.MiddlewareFunc
		if r.Guard != nil {
			guards = append(guards, echoidem.New(r.Guard))
		}
		add(r.Method, r.Pattern[len(app.Group):], func(c echo.Context) error { return r.Behaviour(echoCall{c}) }, guards...)
	}
	return adaptertest.Listen(tb, e)
}

// conformanceRecovery does what echo's own middleware.Recover does, whose package has dependencies that
// this module can do without.
func conformanceRecovery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		defer func() {
			if v := recover(); v != nil {
				c.Error(fmt.Errorf("%v", v))
			}
		}()
		return next(c)
	}
}

// conformanceErrors is what houses with an envelope of their own have in front.
func conformanceErrors(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err == nil || c.Response().Committed {
			return err
		}
		status, message := http.StatusInternalServerError, err.Error()
		var failure *echo.HTTPError
		if errors.As(err, &failure) {
			status, message = failure.Code, fmt.Sprint(failure.Message)
		}
		contentType, body := adaptertest.RenderError(message)
		return c.Blob(status, contentType, body)
	}
}

// echoCall does what handlers for echo do.
type echoCall struct{ c echo.Context }

func (c echoCall) Context() context.Context { return c.c.Request().Context() }

func (c echoCall) Run() (*core.Run, bool) { return echoidem.Run(c.c) }

func (c echoCall) Header(name string) string { return c.c.Request().Header.Get(name) }

func (c echoCall) Param(name string) string { return c.c.Param(name) }

func (c echoCall) Query(name string) string { return c.c.QueryParam(name) }

func (c echoCall) Body() ([]byte, error) { return io.ReadAll(c.c.Request().Body) }

func (c echoCall) Bind(v any) error { return c.c.Bind(v) }

func (c echoCall) FormFile(field string) (string, []byte, error) {
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

func (c echoCall) SetHeader(name, value string) { c.c.Response().Header().Set(name, value) }

func (c echoCall) AddHeader(name, value string) { c.c.Response().Header().Add(name, value) }

func (c echoCall) JSON(status int, v any) error { return c.c.JSON(status, v) }

func (c echoCall) Blob(status int, contentType string, body []byte) error {
	// c.c.Blob leaves a Content-Type alone that a middleware has set.
	c.c.Response().Header().Set(echo.HeaderContentType, contentType)
	return c.c.Blob(status, contentType, body)
}

func (c echoCall) NoContent(status int) error { return c.c.NoContent(status) }

func (c echoCall) Write(status int, contentType string, flush bool, pieces ...string) error {
	w := c.c.Response()
	w.Header().Set(echo.HeaderContentType, contentType)
	w.WriteHeader(status)
	for _, piece := range pieces {
		// By way of io.ReaderFrom, if the writer has it.
		if _, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(piece)}); err != nil {
			return err
		}
		if flush {
			w.Flush()
		}
	}
	return nil
}

func (c echoCall) Stream(status int, contentType string, write func(io.Writer, func()) error) error {
	w := c.c.Response()
	w.Header().Set(echo.HeaderContentType, contentType)
	w.WriteHeader(status)
	return write(w, w.Flush)
}

func (c echoCall) EarlyHints(link string) error {
	// echo's own writer takes the status for the final one: hints go around it.
	w := c.c.Response().Writer
	w.Header().Set("Link", link)
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Del("Link")
	return nil
}

func (c echoCall) Upgrade(protocol string, talk func(net.Conn)) error {
	conn, _, err := c.c.Response().Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		return err
	}
	talk(conn)
	return nil
}

func (c echoCall) Fail(status int, message string) error { return echo.NewHTTPError(status, message) }
