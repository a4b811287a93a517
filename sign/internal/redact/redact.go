// Package redact takes credentials out of signing strings.
package redact

import (
	"net/url"
	"strings"
)

// Mark replaces a secret in a signing string.
const Mark = "[redacted]"

// Field returns the value of a header field for a signing string. It returns [Mark] if the name, in any case, is one
// of a credential.
func Field(name, value string) string {
	if isCredential(name) {
		return Mark
	}
	return value
}

// Query returns a query for a signing string. [Mark] replaces the values of parameters whose names are those of
// credentials: token, password, api_key and so on.
func Query(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, ok := strings.Cut(pair, "=")
		decoded, err := url.QueryUnescape(name)
		if ok && (err != nil || isCredential(decoded)) {
			pairs[i] = name + "=" + Mark
		}
	}
	return strings.Join(pairs, "&")
}

// isCredential reports whether a field or parameter of that name may hold a secret. In doubt it says yes.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "authorization", "proxy-authorization", "cookie", "set-cookie", "auth", "code", "key", "pwd", "pass", "pin",
		"otp", "jwt", "sig", "signature", "sign":
		return true
	}
	for _, part := range []string{"token", "secret", "password", "passwd", "api-key", "api_key", "apikey", "access-key", "access_key",
		"accesskey", "credential", "session", "bearer", "assertion"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
