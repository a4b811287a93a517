package core_test

import (
	"context"
	"fmt"
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
