package ginidem_test

import (
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/sign"
)

func TestConformance(t *testing.T) { adaptertest.Run(t, harness) }

func BenchmarkVerify(b *testing.B) { adaptertest.BenchVerify(b, harness) }

var harness = adaptertest.Harness{
	Name:  "gin",
	Start: startGin,
	User:  func(name string) core.UserSource { return ginidem.UserFromContext(name) },
	Features: adaptertest.Features{
		EarlyHints: true, Flush: true, ContextEnds: true, OuterErrors: true, OuterBodyLimit: true,
		GroupRoutes: true, GlobalRoutes: true, BodyStreams: true, Counts: true, TimeLimit: true, Prefixes: true, HTTP2: true,
		Front: []adaptertest.Front{adaptertest.FormReader, adaptertest.JSONBinder, adaptertest.Peeker, adaptertest.PutterBack,
			adaptertest.Keeper, adaptertest.Decompressor, adaptertest.Limiter},
	},
}

func startGin(tb testing.TB, app adaptertest.App) string {
	gin.SetMode(gin.TestMode)
	engine := gin.New()
	engine.UseRawPath = true // else %2F ends a parameter
	engine.Use(gin.RecoveryWithWriter(io.Discard))
	if app.Errors && !app.WithoutFinish || app.Finish {
		engine.Use(ginidem.Finish())
	}
	if app.Errors {
		engine.Use(conformanceErrors(app.IgnoreContextErrors))
	}
	engine.Use(func(c *gin.Context) {
		if login := c.GetHeader("X-Login"); app.Login && login != "" {
			c.Set("user", login)
		}
		r, end := app.InFront(c.Writer, c.Request)
		defer end()
		c.Request = r
		c.Next()
		if app.After != nil {
			after := adaptertest.Outcome{Body: c.Request.Body, Context: c.Request.Context(), Form: c.Request.PostForm.Get,
				Header: c.Writer.Header().Get, Replayed: ginidem.Replayed(c)}
			if last := c.Errors.Last(); last != nil {
				after.Err = last.Err
			}
			app.After(after)
		}
	})
	for _, f := range app.Front {
		engine.Use(readInFront(f))
	}
	var router gin.IRouter = engine
	if app.Group != "" {
		router = engine.Group(app.Group)
	}
	if app.Guard != nil {
		router.Use(ginidem.New(app.Guard))
	}
	for _, r := range app.Routes {
		handler := func(c *gin.Context) {
			// A failure of gin's own is reported already.
			if err := r.Handler(newGinCall(c, engine)); err != nil && len(c.Errors) == 0 {
				_ = c.AbortWithError(http.StatusInternalServerError, err)
			}
		}
		if r.Issues != nil {
			handler = ginidem.IssueToken(r.Issues)
		}
		stack := adaptertest.Stack(r, ginidem.Verify, ginidem.New)
		if r.Method == "" {
			engine.Use(stack...)
			engine.NoRoute(handler) // gin has no other way to take every method
			continue
		}
		pattern := r.Pattern[len(app.Group):]
		if len(pattern) > 1 && pattern[len(pattern)-1] == '*' {
			pattern += "rest"
		}
		router.Handle(r.Method, pattern, append(stack, handler)...)
	}
	return adaptertest.Listen(tb, app.Mounted(engine))
}

// readInFront is f, as gin has it or its users write it.
func readInFront(f adaptertest.Front) gin.HandlerFunc {
	return func(c *gin.Context) {
		var v any
		var err error
		switch {
		case c.GetHeader(adaptertest.UnreadHeader) != "":
		case f == adaptertest.FormReader:
			_ = c.PostForm("sku")
		case f == adaptertest.JSONBinder:
			err = c.ShouldBindJSON(&v)
		case f == adaptertest.Keeper:
			err = c.ShouldBindBodyWithJSON(&v)
		default:
			err = adaptertest.ReadInFront(f, c.Writer, c.Request)
		}
		if err != nil {
			_ = c.AbortWithError(http.StatusBadRequest, err)
		}
	}
}

// conformanceErrors is what services that report by c.Error have in front.
func conformanceErrors(ignoreContext bool) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Next()
		if last := c.Errors.Last(); last != nil && !(ignoreContext && adaptertest.ContextEnded(last.Err)) {
			status := http.StatusInternalServerError
			var failure *conformanceFailure
			if errors.As(last.Err, &failure) {
				status = failure.status
			}
			contentType, body := adaptertest.RenderError(last.Err.Error())
			c.Data(status, contentType, body)
		}
	}
}

type conformanceFailure struct {
	status  int
	message string
}

func (f *conformanceFailure) Error() string { return f.message }

// ginCall does what handlers for gin do.
type ginCall struct {
	adaptertest.NetHTTPCall
	c   *gin.Context
	app http.Handler
}

func newGinCall(c *gin.Context, app http.Handler) ginCall {
	beneath := c.Writer.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
	return ginCall{adaptertest.OnNetHTTP(c.Writer, beneath, func() *http.Request { return c.Request }), c, app}
}

func (c ginCall) Run() *core.Run { return ginidem.Run(c.c) }

func (c ginCall) Verified() (sign.Verified, bool) { return ginidem.Verified(c.c) }

func (c ginCall) Param(name string) string { return c.c.Param(name) }

func (c ginCall) Query(name string) string { return c.c.Query(name) }

func (c ginCall) Body() ([]byte, error) { return c.c.GetRawData() }

func (c ginCall) Bind(v any) error { return c.c.ShouldBind(v) }

func (c ginCall) FormFile(field string) (*multipart.FileHeader, error) { return c.c.FormFile(field) }

func (c ginCall) SetContext(ctx context.Context) { c.c.Request = c.c.Request.WithContext(ctx) }

func (c ginCall) JSON(status int, v any) error {
	c.c.JSON(status, v)
	return nil
}

func (c ginCall) Blob(status int, contentType string, body []byte) error {
	// c.Data leaves a Content-Type alone that a middleware has set.
	c.c.Header("Content-Type", contentType)
	c.c.Data(status, contentType, body)
	return nil
}

func (c ginCall) NoContent(status int) error {
	c.c.Status(status)
	return nil
}

func (c ginCall) Report(err error) error {
	_ = c.c.Error(err)
	return err
}

func (c ginCall) Proxy(addr string) error {
	gin.WrapH(adaptertest.NewProxy(addr))(c.c)
	return nil
}

func (c ginCall) NewToken(g *core.Guard) (string, error) { return ginidem.NewToken(c.c, g) }

func (c ginCall) Within(target, key string) (*adapter.Response, error) {
	return adaptertest.Within(c.app, c.c.Request, target, key), nil
}

func (c ginCall) Fail(status int, message string) error {
	err := &conformanceFailure{status, message}
	_ = c.c.Error(err)
	return err
}
