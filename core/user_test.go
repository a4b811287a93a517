package core_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
)

// userPart is what stands for the user in the key of a call under source, or the code of
// the refusal.
func userPart(t *testing.T, source core.UserSource, c *call) string {
	t.Helper()
	return userPartOf(core.MustNew(core.Config{}).MustGuard(core.Policy{User: source}), core.Request{Headers: c}, c)
}

func userPartOf(g *core.Guard, r core.Request, c *call) string {
	c.Describe(&r)
	key, _, err := g.Key(&r)
	var refused *core.Refusal
	if errors.As(err, &refused) {
		return string(refused.Code)
	}
	user, _, _ := strings.Cut(strings.TrimPrefix(key.Raw(), "idem:U="), "M=")
	return user
}

func TestUserSources(t *testing.T) {
	byFunc := func(u core.User, err error) core.UserSource {
		return core.UserFunc(func(*core.Request) (core.User, error) { return u, err })
	}
	for name, tc := range map[string]struct {
		source core.UserSource
		header string // "Name: value"
		want   string
	}{
		"header":              {byUser, "X-User: bob", "bob"},
		"header, escaped":     {byUser, "X-User: aM=POST /ordersP=%", "aM%3DPOST%20/ordersP%3D%25"},
		"header, as a mark":   {byUser, "X-User: 1#10.0.0.1", "1%2310.0.0.1"},
		"header, hash tag":    {byUser, "X-User: {slot}", "%7Bslot%7D"},
		"header missing":      {byUser, "", "user_missing"},
		"header empty":        {byUser, "X-User: ", "user_missing"},
		"64 bytes":            {byUser, "X-User: " + strings.Repeat("a", 64), strings.Repeat("a", 64)},
		"65 bytes are hashed": {byUser, "X-User: " + strings.Repeat("a", 65), "#Y1NhxIu56rFBmOduqKt_GkFoXWrWKqkUbTAdTxfrCuA"},
		"authorization is hashed": {core.UserFromSecretHeader("Authorization"), "Authorization: Bearer x",
			"#uTem_WB082UJMN2ajD6lH6UChGpTAddMJSx2iu923No"},
		"real IP":             {core.UserFromRealIP(), "X-Real-Ip: 10.1.2.3", "10.1.2.3"},
		"address":             {core.UserFromRemoteAddr(), "", "192.0.2.1"},
		"fallback not needed": {core.FirstUser(byUser, core.UserFromRemoteAddr()), "X-User: bob", "bob"},
		"fallback":            {core.FirstUser(byUser, core.UserFromRemoteAddr()), "", "1#192.0.2.1"},
		"nested fallback":     {core.FirstUser(byUser, core.FirstUser(byUser, core.UserFromRemoteAddr())), "", "1.1#192.0.2.1"},
		"fallback, hashed": {core.FirstUser(byUser, core.UserFromSecretHeader("Authorization")), "Authorization: Bearer x",
			"1##uTem_WB082UJMN2ajD6lH6UChGpTAddMJSx2iu923No"},
		"nobody at all":          {core.FirstUser(byUser, core.UserFromRealIP()), "", "user_missing"},
		"shared":                 {core.SharedByAllCallers(), "X-User: bob", ""},
		"function":               {byFunc(core.User{ID: "f"}, nil), "", "f"},
		"function without":       {byFunc(core.User{}, nil), "", "user_missing"},
		"function fails":         {byFunc(core.User{ID: "f"}, errDown), "", "user_missing"},
		"no fallback on failure": {core.FirstUser(byFunc(core.User{}, errDown), core.UserFromRemoteAddr()), "", "user_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			c := post("", nil)
			c.header.Del("X-User")
			c.remote = "192.0.2.1:4711"
			if field, value, ok := strings.Cut(tc.header, ": "); ok {
				c.header.Set(field, value)
			}
			assert.Equal(t, tc.want, userPart(t, tc.source, c))
		})
	}
	c := post("", nil)
	delete(c.header, "X-User")
	assert.Equal(t, "1#", userPart(t, core.FirstUser(byUser, core.SharedByAllCallers()), c), "all guests are one")
	c.header["X-User"] = []string{"alice", "bob"}
	assert.Equal(t, "user_missing", userPart(t, core.FirstUser(byUser, core.UserFromRemoteAddr()), c),
		"a user named twice is not replaced by a guest")
}

// TestEmptyContextKey: where authentication leaves its user under another key than the policy names, each request is refused. A warning
// names the key, once; what follows is logged as any request without a user.
func TestEmptyContextKey(t *testing.T) {
	empty := core.NoUserUnder("usr")
	native := core.UserFunc(func(*core.Request) (core.User, error) { return core.User{}, empty })
	for name, source := range map[string]core.UserSource{
		"alone": native, "first": core.FirstUser(native, byUser), "last": core.FirstUser(byUser, core.FirstUser(native)),
	} {
		empty = core.NoUserUnder("usr")
		var log bytes.Buffer
		observe := core.LogEvents(slog.New(slog.NewTextHandler(&log, nil)), slog.LevelInfo)
		g := core.MustNew(core.Config{User: source, Observe: observe}).MustGuard(core.Policy{})
		for _, level := range []string{"WARN", "INFO", "INFO"} {
			c := post("", nil)
			c.header.Del("X-User")
			assert.Equal(t, "user_missing", serve(t, g, c).code(), name)
			assert.Contains(t, log.String(), "level="+level, name)
			assert.Contains(t, log.String(), `under the key \"usr\"`)
			log.Reset()
		}
		if name != "alone" {
			assert.Equal(t, 201, serve(t, g, post("", nil)).response.Status, "it is found elsewhere")
		}
	}
	assert.ErrorIs(t, empty, core.ErrNoUser)
}

func TestUsersFromDifferentSourcesAreNeverOne(t *testing.T) {
	source := func(header string) core.UserSource { return core.UserFromHeader(header) }
	nested := core.FirstUser(core.FirstUser(source("A"), source("B")), source("C"), core.FirstUser(source("D"), source("E")))
	seen := map[string]string{}
	for _, header := range []string{"A", "B", "C", "D", "E"} {
		c := post("", nil)
		c.header.Set(header, "7")
		part := userPart(t, nested, c)
		assert.Empty(t, seen[part], "%s and %s are both %s", header, seen[part], part)
		seen[part] = header
	}

	c := post("", nil)
	assert.NotEqual(t, userPart(t, always(core.User{ID: "a b"}), c), userPart(t, always(core.User{ID: "b", Issuer: "a"}), c))
	assert.Equal(t, "iss#https%253A%252F%252Fid%20u1", userPart(t, always(core.User{ID: "u1", Issuer: "https://id"}), c))
	assert.Equal(t, "user_missing", userPart(t, always(core.User{Issuer: "https://id"}), c))
}

func always(u core.User) core.UserSource {
	return core.UserFunc(func(*core.Request) (core.User, error) { return u, nil })
}

func TestHeadersThatTellOfSecretsAreHashed(t *testing.T) {
	const secret = "s3cr3t-of-alice"
	for _, name := range []string{
		"X-Api-Key", "Api-Key", "X-ApiKey", "Api_key", "X-Key", "X-Access-Key", "Ocp-Apim-Subscription-Key", "X-Functions-Key",
		"X-Goog-Api-Key", "X-Auth", "X-Auth-Token", "Authorization", "Proxy-Authorization", "X-Amz-Security-Token", "X-Amz-Signature",
		"X-Csrf", "X-Csrf-Token", "X-Xsrf-Token", "Cookie", "X-Session", "X-Session-Id", "Sid", "X-Password", "X-Passwd", "X-Passphrase",
		"X-Pin", "X-Otp", "X-Pwd", "X-Credentials", "X-Jwt", "X-Jwt-Assertion", "X-Saml-Assertion", "X-Bearer", "X-Client-Secret", "X-Sig",
		"X-Keys", "X-ApiKeyId", "X-Api-KeyId", "X_Key_Id", "X.Key.Id",
	} {
		c := post("", nil)
		c.header[http.CanonicalHeaderKey(name)] = []string{secret}
		assert.Equal(t, "#"+hashed(secret), userPart(t, core.UserFromHeader(name), c), name)
	}
	for _, name := range []string{"X-User", "X-User-Id", "X-Tenant", "X-Account", "X-Customer", "X-Client-Id", "X-Forwarded-User",
		"Remote-User", "X-Real-Ip", "X-Host", "X-Spinner", "X-Inside", "X-Author-Id", "X-Passenger-Id", "X-Monkey-Id", "X-Secretary",
		"X-Obsession-Id", "X-Authenticated-User", "X-Auth-User", "X-Auth-Request-Email"} {
		c := post("", nil)
		c.header.Set(name, "alice")
		assert.Equal(t, "alice", userPart(t, core.UserFromHeader(name), c), name)
	}
	c := post("", nil)
	c.header.Set("X-Customer", secret)
	assert.Equal(t, "#"+hashed(secret), userPart(t, core.UserFromSecretHeader("X-Customer"), c))
}
