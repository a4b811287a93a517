// Package jwk makes keys of JWK Sets (RFC 7517): [ParseSet] of one that you have, and a [Source] of those that partners publish on
// the web:
//
//	source := jwk.NewSource(func(url string) bool { return partners[url] })
//	…
//	verifier, err := sign.NewVerifier(sign.Config{Keys: source, Scheme: scheme})
package jwk
