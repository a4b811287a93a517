// Package secret shows the secret of a key to the schemes in folders of package sign, for those in which it is a part
// of what is signed. Nothing outside of that folder can import it.
package secret

// Of returns the secret of key, which is a *sign.Key: nil unless it was made by sign.NewHMACKey. The bytes are the key's
// own, and must not be changed. Package sign sets Of.
var Of func(key any) []byte
