// Package jwk makes keys for package sign from JWK Sets (RFC 7517). [ParseSet] reads a set that you have. A [Source] fetches the sets
// that partners publish on the web:
//
//	source := jwk.NewSource(func(url string) bool { return partners[url] })
//	…
//	verifier, err := sign.NewVerifier(sign.Config{Keys: source, Scheme: scheme})
package jwk
