package docs_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/operate"
	"github.com/idem-go/idem/profile"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/jwk"
	"github.com/idem-go/idem/sign/rfc9421"
)

// The code of these pages stands in a test as it stands there, and so compiles. What needs another module is in that module.
func TestCode(t *testing.T) {
	var sources string
	for _, name := range []string{"code_test.go", "limits_test.go", "refusals_test.go",
		"tokens_test.go", "../examples/browser/tokens_test.go", "../core/example_policy_test.go", "../core/example_step_test.go",
		"../core/example_schedule_test.go", "../benchmarks/fiber_migration_test.go", "../core/store/sqlstore/example_test.go",
		"../amqpidem/example_test.go", "../watermillidem/example_test.go", "../grpcidem/example_test.go", "../connectidem/example_test.go",
		"../goredisidem/example_test.go", "../valkeyidem/example_test.go",
		"../mcpidem/example_test.go", "../mcpgoidem/example_test.go",
		"../idemclient/example_test.go", "../examples/production/main.go",
		"../ginidem/example_webhooks_test.go",
		"../sign/example_scheme_test.go"} {
		sources += unindented(page(t, name)) + "\n"
	}
	for name, count := range map[string]int{
		"agents.md": 3, "clients.md": 4, "messages.md": 4, "migrating.md": 4, "mounting.md": 7, "operating.md": 1,
		"policies.md": 5, "problems.md": 4, "production.md": 4, "records.md": 1, "rpc.md": 3, "signing.md": 5, "steps.md": 6,
		"stores.md": 10, "tokens.md": 7,
	} {
		blocks := strings.Split(page(t, name), "```go\n")[1:]
		require.Len(t, blocks, count, name)
		for _, block := range blocks {
			code, _, _ := strings.Cut(block, "```")
			require.Contains(t, sources, unindented(code), name)
		}
	}
}

// unindented is code without what stands in front of its lines.
func unindented(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// operating.md

func _(engine *core.Engine, mux *http.ServeMux, isOperator func(name, password string) bool) error {
	page, err := operate.New(engine, operate.Options{Authorize: func(r *http.Request) (operate.Actor, operate.Access, error) {
		name, password, _ := r.BasicAuth()
		if !isOperator(name, password) {
			return "", operate.None, nil
		}
		return operate.Actor(name), operate.Change, nil
	}})
	if err != nil {
		return err
	}
	mux.Handle("/admin/idempotency/", page) // gin.WrapH(page), echo.WrapHandler(page), adaptor.HTTPHandler(page)
	return nil
}

// agents.md

func _(engine *core.Engine, router *gin.Engine, createSession, updateSession gin.HandlerFunc) {
	sessions := ginidem.New(engine.MustGuard(profile.ACP()))
	router.POST("/checkout_sessions", sessions, createSession)
	router.POST("/checkout_sessions/:id", sessions, updateSession)
}

// records.md

func _(store store.Store, user core.UserSource) (*core.Engine, error) {
	seal, err := core.ParseSeal(os.Getenv("IDEM_SEAL")) // digest=<base64>,2026-11=<base64>
	if err != nil {
		return nil, err
	}
	engine, err := core.New(core.Config{Service: "shop", Store: store, User: user, Seal: seal})
	return engine, err
}

// clients.md

func _() *http.Client {
	client := &http.Client{Transport: &idemclient.Transport{Hosts: []string{"api.example.com"}}}
	return client
}

func _(e *echo.Echo) {
	e.Use(middleware.CORSWithConfig(middleware.CORSConfig{
		AllowOrigins: []string{"https://shop.example"},
		AllowHeaders: []string{"Idempotency-Key", "X-Idempotency-Token", "Content-Type", "Authorization"},
		ExposeHeaders: []string{"Idempotent-Replayed", "Idempotency-Refused", "Idempotency-Key", "Idempotency-Key-Expires", "Retry-After",
			"Location"},
	}))
}

// mounting.md

func _(router http.Handler) *http.Server {
	server := http.Server{Handler: http.TimeoutHandler(router, 10*time.Second, "")} // net/http, Gin, Echo
	return &server
}

func _(app *fiber.App) *fasthttp.Server {
	server := fasthttp.Server{Handler: fasthttp.TimeoutHandler(app.Handler(), 10*time.Second, "")} // Fiber
	return &server
}

func _(addr string, mux *http.ServeMux, shop http.Handler) error {
	mux.Handle("a.example.com/", shop) // the routes of shop have two keys
	mux.Handle("b.example.com/", shop)
	err := http.ListenAndServe(addr, mux)
	return err
}

var _ = []core.UserSource{
	core.UserFunc(func(r *core.Request) (core.User, error) {
		user, lines := r.Headers.Header("X-User", 0)
		if user == "" || lines > 1 { // else all callers without a user would be one user of the host
			return core.User{}, core.ErrNoUser
		}
		return core.User{ID: r.Host + " " + user}, nil
	}),
}

func _(r *gin.Engine, renderErrors gin.HandlerFunc) {
	r.Use(gin.Recovery(), ginidem.Finish(), renderErrors) // c.Error(err) in the handler, rendered by renderErrors
}

func _() (*core.Engine, error) {
	engine, err := core.New(core.Config{Observe: core.LogEvents(slog.Default(), slog.LevelInfo)})
	return engine, err
}

// policies.md

func _(engine *core.Engine) (*core.Guard, error) {
	policy := core.ClientKey()
	policy.Name = "payments"
	policy.Duplicate = core.Wait(5 * time.Second)
	payments, err := engine.Guard(policy)
	return payments, err
}

func _() core.Policy {
	policy := core.Policy{Key: core.Header(core.Required), Record: core.Record{Lease: 10 * time.Second, Retention: 48 * time.Hour}}
	return policy
}

func _() core.Policy {
	policy := core.ClientKey()                 // a Retention of 24 hours
	policy.RefuseExpired = 30 * 24 * time.Hour // and 30 days after it
	return policy
}

func _(bank interface {
	HasCharged(context.Context, *core.Request) (bool, error)
}) core.Policy {
	policy := core.ClientKey()
	policy.OnFailure = core.Abandon
	policy.Abandoned = core.Uncertain(func(ctx context.Context, u core.Uncertainty) (core.Verdict, error) {
		charged, err := bank.HasCharged(ctx, u.Request)
		switch {
		case err != nil:
			return core.Unknown(), err
		case charged:
			return core.Finished(&core.Response{Status: http.StatusCreated}), nil
		default:
			return core.RunAgain(), nil
		}
	})
	return policy
}

func _(ctx context.Context, engine *core.Engine, messageID string, mailer interface {
	Send(context.Context, string) (string, error)
}) (core.Result[string], error) {
	receipts := engine.MustTask(core.TaskPolicy{Name: "send receipt"})
	result, err := core.Do(ctx, receipts, core.Call{Key: messageID}, func(ctx context.Context) (string, error) {
		return mailer.Send(ctx, messageID)
	})
	return result, err
}

// signing.md

func _(engine *core.Engine, r *gin.Engine, partners map[string]bool, receive gin.HandlerFunc) error {
	source := jwk.NewSource(func(url string) bool { return partners[url] }) // or true: anyone may sign, and is identified by their URL
	verifier, err := sign.NewVerifier(sign.Config{
		Keys: source, Scheme: sign.Must(rfc9421.New(rfc9421.UCP())),
		Hosts:        []string{"shop.example.com"},
		GuardedByKey: true, // UCP has no nonce: the guard below stops replays
		Observe:      sign.LogEvents(slog.Default(), slog.LevelInfo),
	})
	if err != nil {
		return err
	}
	checkout := engine.MustGuard(core.Policy{Key: core.Header(core.Required), User: core.UserFromCaller()})

	r.POST("/checkout-sessions", ginidem.Verify(verifier), ginidem.New(checkout), receive)
	return nil
}

func _(engine *core.Engine, secret []byte, r *gin.Engine, receive gin.HandlerFunc) error {
	key, err := sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, secret) // at least 32 bytes; or sign.NewKey for Ed25519 and others
	if err != nil {
		return err
	}
	verifier, err := sign.NewVerifier(sign.Config{
		Keys:    sign.Must(sign.NewRing(key)),
		Nonces:  engine.Nonces(),                                // in the engine's store: shared by all instances
		Hosts:   []string{"api.example.com"},                    // refuses what was signed for another host
		Observe: sign.LogEvents(slog.Default(), slog.LevelInfo), // the log shows the reason, the client does not see it
	})
	if err != nil {
		return err
	}
	webhooks := engine.MustGuard(core.Policy{Key: core.Header(core.Optional), User: core.UserFromCaller()})

	r.POST("/webhooks", ginidem.Verify(verifier), ginidem.New(webhooks), receive) // the same in the other adapters
	return nil
}

func _(key *sign.Key) *http.Client {
	client := &http.Client{Transport: &sign.Transport{Key: key}}
	return client
}

// stores.md

func _() (store.Store, error) {
	// or redisstore.New(client, redisstore.Config{}), with your rueidis.Client
	store, err := redisstore.NewURL("redis://10.0.0.7", redisstore.Config{})
	return store, err
}

func _(store store.Store) (*core.Engine, error) {
	engine, err := core.New(core.Config{Service: "shop", Store: store, User: core.UserFromHeader("X-User")})
	return engine, err
}

// production.md, stores.md, mounting.md

func newShop(engine *core.Engine) http.Handler {
	payments := engine.MustGuard(core.ClientKey())
	mux := http.NewServeMux()
	mux.Handle("POST /payments", httpidem.New(payments)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpidem.Run(r).Takeover() {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	return mux
}

func pay(shop http.Handler, key string) int {
	r := httptest.NewRequest("POST", "/payments", nil)
	r.Header.Set("X-User", "ann")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	shop.ServeHTTP(w, r)
	return w.Code
}

func TestTesting(t *testing.T) {
	e := idemtest.New(t, core.Config{User: core.UserFromHeader("X-User")})
	shop := newShop(e.Engine) // the service's own code, which takes the engine from outside

	require.Equal(t, 201, pay(shop, "k-1"))
	require.Equal(t, 201, pay(shop, "k-1"))
	e.WantRuns("POST /payments", 1)
	e.WantReplays("POST /payments", 1)

	e.NextIsRunning(time.Minute)
	require.Equal(t, 409, pay(shop, "k-2"))

	e.NextIsAbandoned(1)
	require.Equal(t, 202, pay(shop, "k-3")) // the handler looks at Takeover

	e.Advance(24 * time.Hour)
	require.Equal(t, 201, pay(shop, "k-1"))
	e.WantRuns("POST /payments", 3)

	e.Fail(idemtest.Acquire)
	require.Equal(t, 503, pay(shop, "k-4"))
}

func _(t *testing.T, openStore func(testing.TB) store.Store) {
	storetest.Run(t, func(tb testing.TB) storetest.Instance {
		return storetest.Instance{Store: openStore(tb)}
	}, storetest.Features{})
}

func _(t *testing.T) {
	harness := adaptertest.NetHTTP("mine", adaptertest.NetHTTPAdapter{
		New:        func(g *core.Guard) func(http.Handler) http.Handler { return httpidem.New(g) },
		Finish:     httpidem.Finish(),
		Replayed:   httpidem.Replayed,
		Verify:     httpidem.Verify,
		IssueToken: httpidem.IssueToken,
		NewToken:   httpidem.NewToken,
	})
	harness.User = func(name string) core.UserSource {
		return httpidem.UserFromContext(adaptertest.ContextKey(name))
	}
	adaptertest.Run(t, harness)
}
