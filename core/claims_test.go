package core_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
)

// These have the form of golang-jwt's types: the names of the fields that count, the methods,
// and what is embedded in what. examples/jwt_test.go has the library.

type (
	claimsV5 interface {
		GetIssuer() (string, error)
		GetSubject() (string, error)
	}
	tokenV5 struct {
		Raw    string
		Header map[string]any
		Claims claimsV5
		Valid  bool
	}
	mapClaimsV5        map[string]any
	registeredClaimsV5 struct {
		Issuer  string `json:"iss,omitempty"`
		Subject string `json:"sub,omitempty"`
	}
	customClaimsV5 struct {
		registeredClaimsV5
		Role string
	}
	// A token of v4: its claims have no GetSubject.
	tokenV4 struct {
		Claims interface{ Valid() error }
		Valid  bool
	}
	mapClaimsV4 map[string]any
	wrapped     struct{ *tokenV5 }
)

func (m mapClaimsV5) GetIssuer() (string, error)  { return m.text("iss") }
func (m mapClaimsV5) GetSubject() (string, error) { return m.text("sub") }

func (m mapClaimsV5) text(name string) (string, error) {
	raw, ok := m[name]
	if !ok {
		return "", nil
	}
	s, ok := raw.(string)
	if !ok {
		return "", errDown
	}
	return s, nil
}

func (c registeredClaimsV5) GetIssuer() (string, error)  { return c.Issuer, nil }
func (c registeredClaimsV5) GetSubject() (string, error) { return c.Subject, nil }

func (mapClaimsV4) Valid() error { return nil }

func fromNative(v any) core.UserSource {
	return core.UserFunc(func(*core.Request) (core.User, error) { return core.UserFromValue(v) })
}

func TestVerifiedTokensNameTheirSubject(t *testing.T) {
	for name, v := range map[string]any{
		"v5, map":          &tokenV5{Claims: mapClaimsV5{"iss": "https://id", "sub": "u1"}, Valid: true},
		"v5, registered":   &tokenV5{Claims: registeredClaimsV5{"https://id", "u1"}, Valid: true},
		"v5, pointer":      &tokenV5{Claims: &registeredClaimsV5{"https://id", "u1"}, Valid: true},
		"v5, custom":       &tokenV5{Claims: &customClaimsV5{registeredClaimsV5{"https://id", "u1"}, "admin"}, Valid: true},
		"v5, claims alone": &customClaimsV5{registeredClaimsV5{"https://id", "u1"}, "admin"},
		"v5, map alone":    mapClaimsV5{"iss": "https://id", "sub": "u1"},
		"v5, wrapped":      wrapped{tokenV5: &tokenV5{Claims: mapClaimsV5{"iss": "https://id", "sub": "u1"}, Valid: true}},
	} {
		part := userPart(t, fromNative(v), post("", new(atomic.Int64)))
		assert.Equal(t, "iss#https%253A%252F%252Fid%20u1", part, name)
	}
	part := userPart(t, fromNative(&tokenV5{Claims: mapClaimsV5{"sub": "u1"}, Valid: true}), post("", new(atomic.Int64)))
	assert.Equal(t, "u1", part)
	number, err := core.UserFromValue(float64(1<<53 - 1)) // a claim that gin-jwt leaves as it was decoded
	require.NoError(t, err)
	assert.Equal(t, "9007199254740991", number.ID)
	number, err = core.UserFromValue(json.Number("9007199254740993"))
	require.NoError(t, err)
	assert.Equal(t, "9007199254740993", number.ID)
}

// What names nobody is refused, and the log says what to write instead.
func TestTokensWithoutASubjectAreAFault(t *testing.T) {
	for name, v := range map[string]any{
		"not verified":           &tokenV5{Claims: mapClaimsV5{"sub": "u1"}},
		"no subject":             &tokenV5{Claims: mapClaimsV5{"user_id": "u1"}, Valid: true},
		"a number":               &tokenV5{Claims: mapClaimsV5{"sub": 7.0}, Valid: true},
		"a number as issuer, v5": &tokenV5{Claims: mapClaimsV5{"sub": "u1", "iss": 7.0}, Valid: true},
		"v4":                     &tokenV4{Claims: mapClaimsV4{"sub": "u1"}, Valid: true},
		"a map":                  map[string]any{"sub": "u1"},
		"nothing wrapped":        wrapped{},
		"no claims":              &tokenV5{Valid: true},
		"a model":                &struct{ ID int }{7},
		"a fraction":             1.5,
		"two ids may be this":    float64(1 << 53),
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			var ledger atomic.Int64
			logger := slog.New(slog.NewTextHandler(&out, nil))
			g := core.MustNew(core.Config{User: fromNative(v), Observe: core.LogEvents(logger)}).MustGuard(core.Policy{})
			assert.Equal(t, "user_missing", serve(t, g, post("{}", &ledger)).code())
			assert.Zero(t, ledger.Load())
			assert.Contains(t, out.String(), "level=WARN")
			if !strings.HasPrefix(name, "not verified") {
				assert.Contains(t, out.String(), "core.UserFunc(")
			}
		})
	}
	_, err := core.UserFromValue((*customClaimsV5)(nil))
	assert.ErrorIs(t, err, core.ErrNoUser)
}

func TestHeadersThatTellOfSecretsAreHashed(t *testing.T) {
	const secret = "s3cr3t-of-alice"
	for _, name := range []string{
		"X-Api-Key", "Api-Key", "X-ApiKey", "Api_key", "X-Key", "X-Access-Key", "Ocp-Apim-Subscription-Key", "X-Functions-Key", "X-Goog-Api-Key",
		"X-Auth", "X-Auth-Token", "Authorization", "Proxy-Authorization", "X-Amz-Security-Token", "X-Amz-Signature", "X-Csrf", "X-Csrf-Token", "X-Xsrf-Token",
		"Cookie", "X-Session", "X-Session-Id", "Sid", "X-Password", "X-Passwd", "X-Passphrase", "X-Pin", "X-Otp", "X-Pwd", "X-Credentials",
		"X-Jwt", "X-Jwt-Assertion", "X-Saml-Assertion", "X-Bearer", "X-Client-Secret", "X-Sig",
		"X-Keys", "X-ApiKeyId", "X-Api-KeyId", "X_Key_Id", "X.Key.Id",
	} {
		c := post("", new(atomic.Int64))
		c.header[http.CanonicalHeaderKey(name)] = []string{secret}
		assert.Equal(t, "#"+hashed(secret), userPart(t, core.UserFromHeader(name), c), name)
	}
	for _, name := range []string{"X-User", "X-User-Id", "X-Tenant", "X-Account", "X-Customer", "X-Client-Id", "X-Forwarded-User", "Remote-User", "X-Real-Ip", "X-Host", "X-Spinner", "X-Inside",
		"X-Author-Id", "X-Passenger-Id", "X-Monkey-Id", "X-Secretary", "X-Obsession-Id", "X-Authenticated-User", "X-Auth-User", "X-Auth-Request-Email"} {
		c := post("", new(atomic.Int64))
		c.header.Set(name, "alice")
		assert.Equal(t, "alice", userPart(t, core.UserFromHeader(name), c), name)
	}
	c := post("", new(atomic.Int64))
	c.header.Set("X-Customer", secret)
	assert.Equal(t, "#"+hashed(secret), userPart(t, core.UserFromSecretHeader("X-Customer"), c))
}

func TestSecretsDoNotReachTheStore(t *testing.T) {
	const secret = "s3cr3t-of-alice"
	var ledger atomic.Int64
	keys := &argumentRecorder{Store: newStore(t)}
	var events strings.Builder
	e := core.MustNew(core.Config{Service: "shop", Store: keys, User: core.UserFromHeader("X-Api-Key"),
		Observe: func(_ context.Context, e core.Event) { fmt.Fprintf(&events, "%+v\n", e) }})
	for i, p := range []core.Policy{{}, core.ClientKey(), core.Exclusive()} {
		c := post(fmt.Sprintf(`{"n":%d}`, i), &ledger).withKey("k")
		c.header.Set("X-Api-Key", secret)
		assert.Equal(t, 201, serve(t, e.MustGuard(p), c).response.Status)
	}
	require.NotEmpty(t, keys.seen)
	assert.NotContains(t, keys.seen, secret)
	assert.NotContains(t, events.String(), secret)
}

// argumentRecorder records what a store is given.
type argumentRecorder struct {
	store.Store
	seen string
}

func (b *argumentRecorder) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	b.seen += fmt.Sprintf("%s %+v\n", key, c)
	return b.Store.Acquire(ctx, key, c)
}

func (b *argumentRecorder) Complete(ctx context.Context, key string, o store.Owner, result []byte, retention time.Duration) error {
	b.seen += fmt.Sprintf("%s %s\n", key, result)
	return b.Store.Complete(ctx, key, o, result, retention)
}
