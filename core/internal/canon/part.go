package canon

import (
	"crypto/sha256"
	"encoding/hex"
)

const upperHex = "0123456789ABCDEF"

// partSafe holds the bytes that stand for themselves in a part of a key.
var partSafe = byteSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/:@,+*!$&'();")

func byteSet(members string) (set [256]bool) {
	for i := 0; i < len(members); i++ {
		set[members[i]] = true
	}
	return set
}

// serviceSafe holds the bytes of a service's name. Without '=', no key of a service is one that has "idem:" alone in
// front of U=, N= or L=.
var serviceSafe = byteSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")

// ServicePrefix returns what the keys of a service begin with. ok is false if its name is not one of 1 to 64
// letters, digits and '-'.
func ServicePrefix(service string) (prefix string, ok bool) {
	ok = service != "" && len(service) <= 64
	for i := 0; i < len(service); i++ {
		ok = ok && serviceSafe[service[i]]
	}
	return "idem:" + service + ":", ok
}

// AppendPart appends value to dst, escaped so that it cannot read as another part of a
// key, and returns the extended slice. Letters, digits and any of -._~/:@,+*!$&'();
// stand for themselves; every other byte becomes %XX, with upper-case digits. So '=',
// which ends the name of a part, '%', '#', and the braces, which mean something to
// Redis Cluster, never come through, and different values stay different.
func AppendPart(dst []byte, value string) []byte {
	plain := 0
	for i := 0; i < len(value); i++ {
		c := value[i]
		if partSafe[c] {
			continue
		}
		dst = append(dst, value[plain:i]...)
		dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		plain = i + 1
	}
	return append(dst, value[plain:]...)
}

// Digest returns what logs call a stored key: the first 16 hexadecimal digits of its SHA-256 digest.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
