// Package fibertest tests what the adapters for all versions of Fiber have to do with Fiber's own behaviour.
package fibertest

import (
	"context"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// Context has the methods that tests call, which are the same in all versions. C is the context's own type.
type Context[C any] interface {
	Body() []byte
	BodyRaw() []byte
	FormFile(name string) (*multipart.FileHeader, error)
	FormValue(name string, otherwise ...string) string
	Get(name string, otherwise ...string) string
	GetRespHeader(name string, otherwise ...string) string
	JSON(v any, contentType ...string) error
	Locals(key any, value ...any) any
	Method(override ...string) string
	Next() error
	OriginalURL() string
	Params(name string, otherwise ...string) string
	Query(name string, otherwise ...string) string
	Request() *fasthttp.Request
	Response() *fasthttp.Response
	Send(body []byte) error
	SendStatus(status int) error
	SendString(body string) error
	Set(name, value string)
	Status(status int) C
	WriteString(s string) (int, error)
}

// Handler is Fiber's, whose own type can't be named here.
type Handler[C any] = func(C) error

// Router is an App, or a group of its routes.
type Router[C any] interface {
	Use(handlers ...Handler[C])
	UseAt(prefix string, handlers ...Handler[C])
	Add(method, pattern string, handlers ...Handler[C])
	All(pattern string, handlers ...Handler[C])
	Group(prefix string, handlers ...Handler[C]) Router[C]
}

// App is a fiber.App.
type App[C any] interface {
	Router[C]
	Mount(prefix string, sub App[C])
	Handler() fasthttp.RequestHandler
	Server() *fasthttp.Server
	Listener(l net.Listener) error
	Shutdown() error
}

// Config has the settings of fiber.Config that tests change.
type Config struct {
	StreamRequestBody            bool
	DisableHeaderNormalizing     bool
	Immutable                    bool
	UnescapePath                 bool
	DisablePreParseMultipartForm bool
}

// Modes are the settings that change what Fiber makes of a request.
var Modes = map[string]Config{
	"plain":         {},
	"streams":       {StreamRequestBody: true},
	"names as sent": {DisableHeaderNormalizing: true},
	"immutable":     {Immutable: true},
}

// Version is a version of Fiber, and the adapter for it.
type Version[C Context[C]] struct {
	Name         string // as errors have it
	NewApp       func(config Config, onError func(C, error) error) App[C]
	Everything   string // the prefix of every path, also of an empty one
	Child        bool   // this process is one of Prefork's
	RequestCtx   func(c C) *fasthttp.RequestCtx
	Context      func(c C) context.Context
	SetContext   func(c C, ctx context.Context)
	Bind         func(c C, v any) error
	EarlyHints   func(c C, link string) error // nil: it can't
	Error        func(status int, message string) error
	StatusOf     func(err error) int                          // of what Error makes; else 0
	DefaultError func(c C, err error) error                   // fiber.DefaultErrorHandler
	Recover      func() Handler[C]                            // middleware/recover
	Logger       func(format string, to io.Writer) Handler[C] // middleware/logger
	FormKeyAuth  func(skip func(C) bool) Handler[C]           // middleware/keyauth, with the key "secret" in the field api-key
	WrapHandler  func(h http.HandlerFunc) Handler[C]          // middleware/adaptor
	Routes       []Route[C]                                   // what other versions do not have

	New            func(g *core.Guard) Handler[C]
	Finish         func() Handler[C]
	Verify         func(v *sign.Verifier) Handler[C]
	Verified       func(c C) (sign.Verified, bool)
	Run            func(c C) *core.Run
	Replayed       func(c C) bool
	IssueToken     func(g *core.Guard) Handler[C]
	NewToken       func(c C, g *core.Guard) (string, error)
	UserFromLocals func(key any) core.UserSource
	PoisonPools    func() // overwrites what lies in the adapter's pools
}

// Run runs all tests but those of [Version.Harness].
func Run[C Context[C]](t *testing.T, v Version[C]) {
	s := suite[C]{v}
	for name, test := range map[string]func(*testing.T){
		"Allocations":                               s.testAllocations,
		"AStreamThatIsGone":                         s.testAStreamThatIsGone,
		"ATimeoutInFrontOfSome":                     s.testATimeoutInFrontOfSome,
		"ChangedFieldsAreRefused":                   s.testChangedFieldsAreRefused,
		"ContextIsRestored":                         s.testContextIsRestored,
		"EventsShowWhereTheGuardIsMounted":          s.testEventsShowWhereTheGuardIsMounted,
		"Finish":                                    s.testFinish,
		"FinishPassesOtherErrors":                   s.testFinishPassesOtherErrors,
		"FinishRefused":                             s.testFinishRefused,
		"FormsThatAreGone":                          s.testFormsThatAreGone,
		"GuardOutsideOfFinish":                      s.testGuardOutsideOfFinish,
		"IssueTokenWithoutTokens":                   s.testIssueTokenWithoutTokens,
		"MountedAppsErrorHandler":                   s.testMountedAppsErrorHandler,
		"NothingLeaks":                              s.testNothingLeaks,
		"PreforkedProcessesNeedAStoreThatTheyShare": s.testPreforkedProcessesNeedAStoreThatTheyShare,
		"Routes":                         s.testRoutes,
		"TheEndOfAStreamAddsNothing":     s.testTheEndOfAStreamAddsNothing,
		"TheFirstLineStaysFirst":         s.testTheFirstLineStaysFirst,
		"TheLoggerSeesErrorsUnderFinish": s.testTheLoggerSeesErrorsUnderFinish,
	} {
		t.Run(name, test)
	}
}

type suite[C Context[C]] struct{ Version[C] }

func (s suite[C]) newApp() App[C] { return s.NewApp(Config{}, nil) }

// mounted returns the handler of a new guard.
func (s suite[C]) mounted(t *testing.T, p core.Policy) Handler[C] {
	return s.New(NewEngine(t).MustGuard(p))
}

// Args is what Fiber takes instead of handlers.
func Args[C any](handlers ...Handler[C]) (args []any) {
	for _, h := range handlers {
		args = append(args, h)
	}
	return args
}

func (s suite[C]) serve(t *testing.T, app App[C]) *Service {
	return Serve(t, app.Listener, app.Shutdown)
}
