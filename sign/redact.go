package sign

import (
	"net/url"
	"strings"
)

// Redacted stands in a signing string for what nobody may see.
const Redacted = "[redacted]"

// RedactField returns the value of a header field for a signing string: [Redacted], if a field of
// that name (in any case) holds a credential.
func RedactField(name, value string) string {
	if isCredential(name) {
		return Redacted
	}
	return value
}

// RedactQuery returns a query for a signing string: as it is, but for the values of parameters
// whose names say that they are credentials (token, password, api_key, …).
func RedactQuery(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, ok := strings.Cut(pair, "=")
		decoded, err := url.QueryUnescape(name)
		if ok && (err != nil || isCredential(decoded)) {
			pairs[i] = name + "=" + Redacted
		}
	}
	return strings.Join(pairs, "&")
}

// isCredential reports whether something of that name holds a secret. It rather takes too much
// for one than too little.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "authorization", "proxy-authorization", "cookie", "set-cookie", "auth", "code", "key", "pwd", "pass", "pin", "otp", "jwt", "sig", "signature", "sign":
		return true
	}
	for _, part := range []string{"token", "secret", "password", "passwd", "api-key", "api_key", "apikey", "access-key", "access_key", "accesskey", "credential", "session", "bearer", "assertion"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
