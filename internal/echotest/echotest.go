// Package echotest tests what the adapters for all versions of Echo have to do with Echo's own behaviour.
package echotest

import (
	"io"
	"mime/multipart"
	"net/http"
	"testing"

	"github.com/idem-go/idem/adapterkit/echokit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/sign"
)

// Context has the methods that tests call, which are the same in all versions.
type Context interface {
	echokit.Context
	Bind(v any) error
	Blob(status int, contentType string, body []byte) error
	FormFile(name string) (*multipart.FileHeader, error)
	FormValue(name string) string
	JSON(status int, v any) error
	NoContent(status int) error
	Param(name string) string
	QueryParam(name string) string
	Redirect(status int, url string) error
	SetCookie(cookie *http.Cookie)
	Stream(status int, contentType string, r io.Reader) error
	String(status int, s string) error
}

// Handler and Middleware are Echo's, whose own types can't be named here.
type (
	Handler[C any]    = func(C) error
	Middleware[C any] = func(Handler[C]) Handler[C]
)

// Router is an Echo, or a part of one.
type Router[C any] interface {
	Use(mw ...Middleware[C])
	Add(method, path string, h Handler[C], mw ...Middleware[C])
}

// App is an Echo, which logs nothing.
type App[C any] interface {
	http.Handler
	Router[C]
	Pre(mw ...Middleware[C])
	Group(prefix string, mw ...Middleware[C]) Router[C]
	Host(name string, mw ...Middleware[C]) Router[C]
	// OnError sets the HTTPErrorHandler; nil is Echo's own.
	OnError(render func(c C, err error))
	// RenderError calls it.
	RenderError(c C, err error)
}

// Version is a version of Echo, and the adapter for it.
type Version[C Context] struct {
	NewApp      func() App[C]
	Echo        func(c C) http.Handler
	HTTPError   func(status int, message string) error
	StatusOf    func(err error) (status int, message string) // of an HTTPError; else 0
	HandleError func(c C, err error)
	Response    func(c C) echokit.Response // whose ResponseWriter is an *echo.Response
	Override    func() Middleware[C]       // middleware.MethodOverride
	WrapHandler func(h http.Handler) Handler[C]
	// BodyReader returns the middleware that reads bodies as f says, but for what skip tells, or nil if Echo has none.
	BodyReader func(f adaptertest.Front, skip func(c C) bool) Middleware[C]
	Fronts     map[string]Front[C]
	Replay     float64 // how many allocations a replay may add

	New             func(g *core.Guard) Middleware[C]
	Finish          func() Middleware[C]
	Verify          func(v *sign.Verifier) Middleware[C]
	Verified        func(c C) (sign.Verified, bool)
	Run             func(c C) *core.Run
	Replayed        func(c C) bool
	IssueToken      func(g *core.Guard) Handler[C]
	NewToken        func(c C, g *core.Guard) (string, error)
	UserFromContext func(key string) core.UserSource
	Pooled          func() any // a copy of an exchange from the adapter's pool
}

// Run runs all tests.
func Run[C Context](t *testing.T, v Version[C]) {
	s := suite[C]{v}
	for name, test := range map[string]func(*testing.T){
		"Allocations":                            s.testAllocations,
		"IssueTokenWithoutTokens":                s.testIssueTokenWithoutTokens,
		"ThePoolHoldsNothing":                    s.testThePoolHoldsNothing,
		"ErrorsAreSeenFurtherOutAndRenderedOnce": s.testErrorsAreSeenFurtherOutAndRenderedOnce,
		"BeforeHooksDoNotDoubleFields":           s.testBeforeHooksDoNotDoubleFields,
		"NothingLeaks":                           s.testNothingLeaks,
		"AnswersThatWereNotSeenWhole":            s.testAnswersThatWereNotSeenWhole,
		"APanicBehindTheAnswerReleasesNothing":   s.testAPanicBehindTheAnswerReleasesNothing,
		"TheErrorHandlerRendersEachErrorOnce":    s.testTheErrorHandlerRendersEachErrorOnce,
		"TheRequestIsGivenBack":                  s.testTheRequestIsGivenBack,
		"APanicAfterSomethingWasSent":            s.testAPanicAfterSomethingWasSent,
		"TheSizeOfARefusal":                      s.testTheSizeOfARefusal,
		"ErrorsThatAreLeftToOthers":              s.testErrorsThatAreLeftToOthers,
		"AnErrorOfABodyIsNotAlwaysTooLarge":      s.testAnErrorOfABodyIsNotAlwaysTooLarge,
		"APanicAfterRendering":                   s.testAPanicAfterRendering,
		"NoRefusalBehindAnAnswer":                s.testNoRefusalBehindAnAnswer,
		"TheStatusAfterAPanic":                   s.testTheStatusAfterAPanic,
		"AnErrorThatNobodyRendersIsAFailure":     s.testAnErrorThatNobodyRendersIsAFailure,
		"HostsDoNotShareKeys":                    s.testHostsDoNotShareKeys,
		"Routes":                                 s.testRoutes,
		"Pre":                                    s.testPre,
		"ResponsesAreThoseOfTheBareHandler":      s.testResponsesAreThoseOfTheBareHandler,
		"Finish":                                 s.testFinish,
		"RefusalsAreWritten":                     s.testRefusalsAreWritten,
		"ErrorsPassVerify":                       s.testErrorsPassVerify,
		"MethodOverride":                         s.testMethodOverride,
	} {
		t.Run(name, test)
	}
}

type suite[C Context] struct{ Version[C] }

// response is an echo.Response and its fields.
type response struct {
	writer
	Writer    *http.ResponseWriter
	Status    *int
	Size      *int64
	Committed *bool
}

type writer interface {
	http.ResponseWriter
	http.Flusher
	http.Hijacker
	Before(fn func())
	After(fn func())
}

func (v Version[C]) response(c C) response {
	r := v.Response(c)
	return response{r.ResponseWriter.(writer), r.Writer, r.Status, r.Size, r.Committed}
}
