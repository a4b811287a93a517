// Package secret gives schemes below package sign the secret of a key, if it is part of their signing string.
package secret

// Of returns the secret of key, a *sign.Key of sign.NewHMACKey, and nil for other keys. The bytes belong to the key and must not
// be changed. Package sign sets Of.
var Of func(key any) []byte
