package echoidem

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
)

// New returns middleware that protects the handler behind it with g. It is safe for
// concurrent use, and may be mounted on any number of routes: the route is part of the
// key. Mounted with Echo.Pre it sees no route; the whole path then takes its place.
func New(g *core.Guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			x := exchanges.Get().(*exchange)
			x.Start(c.Request())
			x.c, x.next = c, next
			err := g.Serve(c.Request().Context(), x)
			if x.pending != nil {
				return err // Finish has it
			}
			// Not after a panic either: nobody knows who still holds it.
			x.End()
			*x = exchange{Request: x.Request}
			exchanges.Put(x)
			return err
		}
	}
}

// Run returns the run that a handler is part of: its attempt, owner and key.
func Run(c echo.Context) (*core.Run, bool) { return core.RunFrom(c.Request().Context()) }

// UserFromContext takes the user from the value that authentication middleware has set
// with c.Set(key, value), see [core.UserFromValue].
func UserFromContext(key string) core.UserSource {
	return core.UserFunc(func(r *core.Request) (core.User, error) {
		c, ok := r.Native.(echo.Context)
		if !ok {
			return core.User{}, fmt.Errorf("echoidem: UserFromContext was used with a %T", r.Native)
		}
		return core.UserFromValue(c.Get(key))
	})
}

// exchange is one request and its response. Exchanges are pooled; what the handler may
// keep hold of is in handed, which is not.
type exchange struct {
	httpidem.Request
	c        echo.Context
	next     echo.HandlerFunc
	response *echo.Response
	below    http.ResponseWriter // that the recorder stands in front of
	recorder *httpidem.Recorder
	direct   answerWriter // for Answer
	partial  bool         // something had been sent before the handler
	finisher *finisher    // nil: no Finish is mounted
	pending  *core.Pending
	err      error // that the handler returned
}

type handed struct {
	httpidem.Recorder
	body httpidem.Body
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (x *exchange) Describe(r *core.Request) {
	x.Request.Describe(r)
	r.Native = x.c
	describeRoute(x.c, r)
}

func (x *exchange) Answer(r *core.Response) error { return answer(x.c, &x.direct, r) }

func answer(c echo.Context, direct *answerWriter, r *core.Response) error {
	response := c.Response()
	*direct = answerWriter{response.Writer, r}
	response.Writer = direct
	defer func() {
		if response.Writer == direct {
			response.Writer = direct.ResponseWriter
		}
	}()
	response.WriteHeader(r.Status)
	if len(r.Body) == 0 {
		return nil
	}
	_, err := response.Write(r.Body)
	return err
}

// answerWriter sets the header of an answer when Echo's Before hooks have run, so that
// what they have added the first time is not there twice.
type answerWriter struct {
	http.ResponseWriter
	answer *core.Response
}

func (w *answerWriter) WriteHeader(status int) {
	httpidem.SetHeader(w.Header(), w.answer)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (x *exchange) Pass() error {
	original := x.c.Request()
	x.c.SetRequest(x.Rewound())
	defer func() {
		x.Adopt(x.c.Request())
		x.c.SetRequest(original)
	}()
	return x.next(x.c)
}

func (x *exchange) Run(ctx context.Context, limit int) (captured core.Capture, err error) {
	c, h := x.c, new(handed)
	original := c.Request()
	c.SetRequest(x.For(ctx, &h.body))
	x.response, x.recorder = c.Response(), &h.Recorder
	x.below, x.partial, x.finisher = x.response.Writer, x.response.Committed, finisherOf(c)
	x.recorder.Start(x.below, limit)
	x.response.Writer = x.recorder

	returned := false
	defer func() {
		x.Adopt(c.Request())
		c.SetRequest(original)
		x.response.Writer = x.below
		switch {
		case !returned: // a panic or runtime.Goexit, which goes on
			_ = x.Deliver()
		case captured.Deferred:
			x.response.Writer = x.finisher.innermost(x).recorder
		}
	}()
	x.err = x.next(c)
	if x.err != nil && x.finisher == nil {
		c.Error(x.err)
	}
	returned = true

	if x.finisher != nil {
		err = x.err
		if !x.response.Committed && !x.recorder.Passing() {
			return core.Capture{Deferred: true, Err: x.err}, err
		}
	}
	return x.capture(), err
}

func (x *exchange) capture() core.Capture {
	captured := x.recorder.Capture(http.StatusOK)
	captured.Incomplete = captured.Incomplete || x.partial || x.bypassed()
	captured.Err = x.err
	return captured
}

// bypassed reports whether somebody has written, but not to the recorder.
func (x *exchange) bypassed() bool { return x.response.Committed && !x.recorder.Written() }

func (x *exchange) Deliver() error { return x.recorder.Deliver() }
