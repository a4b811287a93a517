package core_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
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
		c := post("", nil)
		c.header[http.CanonicalHeaderKey(name)] = []string{secret}
		assert.Equal(t, "#"+hashed(secret), userPart(t, core.UserFromHeader(name), c), name)
	}
	for _, name := range []string{"X-User", "X-User-Id", "X-Tenant", "X-Account", "X-Customer", "X-Client-Id", "X-Forwarded-User", "Remote-User", "X-Real-Ip", "X-Host", "X-Spinner", "X-Inside",
		"X-Author-Id", "X-Passenger-Id", "X-Monkey-Id", "X-Secretary", "X-Obsession-Id", "X-Authenticated-User", "X-Auth-User", "X-Auth-Request-Email"} {
		c := post("", nil)
		c.header.Set(name, "alice")
		assert.Equal(t, "alice", userPart(t, core.UserFromHeader(name), c), name)
	}
	c := post("", nil)
	c.header.Set("X-Customer", secret)
	assert.Equal(t, "#"+hashed(secret), userPart(t, core.UserFromSecretHeader("X-Customer"), c))
}
