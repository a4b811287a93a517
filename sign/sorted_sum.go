package sign

import (
	"crypto/md5"
	"crypto/subtle"
	"encoding/hex"
)

// sortedMAC is what [SortedParams] signs with: the key's code of base, "&key=" and the secret.
func (k *Key) sortedMAC(base, secretName []byte) mac {
	return k.mac(base, secretName, k.secret)
}

// md5Sum is for MD5 what mac is for HMAC-SHA256.
type md5Sum struct {
	_   [0]func() // not comparable
	sum [md5.Size]byte
}

func (m *md5Sum) equals(received []byte) bool {
	return subtle.ConstantTimeCompare(m.sum[:], received) == 1
}

// sortedMD5 is the MD5 of base, "&key=" and the secret.
func (k *Key) sortedMD5(base, secretName []byte) (m md5Sum) {
	h := md5.New()
	h.Write(base)
	h.Write(secretName)
	h.Write(k.secret)
	h.Sum(m.sum[:0])
	return m
}

// fingerprint is what may be shown of a value in a log: the same for the same value under the same
// signature, which is not in the log. So nobody who reads logs can try values on by sending messages of
// their own. Nothing that is signed begins like this: the names of parameters have no line
// feed.
func (k *Key) fingerprint(signature []byte, name, value string) string {
	m := k.mac([]byte("debug\n"), signature, []byte(name), []byte("="), []byte(value))
	return hex.EncodeToString(m.sum[:4])
}
