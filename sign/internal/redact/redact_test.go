package redact_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign/internal/redact"
)

func TestField(t *testing.T) {
	for _, name := range []string{
		"Authorization", "authorization", "PROXY-AUTHORIZATION", "Cookie", "Set-Cookie", "auth", "code", "Key", "pwd", "pass", "PIN", "otp",
		"jwt", "sig", "Signature", "SIGN", "sign", "X-Auth-Token", "client_secret", "passWord", "passwd", "X-Api-Key", "api_key", "API_KEY",
		"apiKey", "Access-Key-Id", "access_key", "AccessKey", "X-Credential", "sessionid", "bearer", "client_assertion",
	} {
		require.Equal(t, redact.Mark, redact.Field(name, "v"), name)
	}
	for _, name := range []string{"", "Content-Type", "Host", "Idempotency-Key", "Signature-Input", "design", "pinned", "keys", "author"} {
		require.Equal(t, "v", redact.Field(name, "v"), name)
	}
}

func TestQuery(t *testing.T) {
	for query, want := range map[string]string{
		"":                          "",
		"a=1&b=2":                   "a=1&b=2",
		"a=1&api_key=2&b=3":         "a=1&api_key=[redacted]&b=3",
		"API_KEY=1":                 "API_KEY=[redacted]",
		"sign=1&signature=2":        "sign=[redacted]&signature=[redacted]",
		"token=a=b":                 "token=[redacted]",
		"token=1&token=2":           "token=[redacted]&token=[redacted]",
		"token=":                    "token=[redacted]",
		"token":                     "token", // it has no value
		"%74oken=1":                 "%74oken=[redacted]",
		"api%5Fkey=1":               "api%5Fkey=[redacted]",
		"%zz=1":                     "%zz=[redacted]", // what can't be read may be a secret
		"a%=1&b=2":                  "a%=[redacted]&b=2",
		"a=token&b=password%3dx&&=": "a=token&b=password%3dx&&=",
	} {
		require.Equal(t, want, redact.Query(query), query)
	}
}
