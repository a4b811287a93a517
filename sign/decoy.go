package sign

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
)

// newDecoys returns keys that nobody has, one of each algorithm.
func newDecoys() []*Key {
	var random [minSecret + ed25519.SeedSize]byte
	rand.Read(random[:]) // never fails
	private := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	nobody := KeyConfig{ID: "-"}
	return []*Key{
		Must(NewHMACKey(nobody, random[:minSecret])),
		Must(NewKey(nobody, ed25519.NewKeyFromSeed(random[minSecret:]).Public())),
		Must(NewKey(nobody, private.Public())),
		Must(NewKey(nobody, rsaDecoy())),
	}
}

// rsaDecoy returns a fixed public key whose private key was thrown away. Making a new one takes too long.
func rsaDecoy() any {
	der := Must(base64.StdEncoding.DecodeString("MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA2u6CdvHP9bPQBcRV5pD+aLB/+e3MK6wnue0XoSki" +
		"FK0Iteni8dqE2P21V3HKrzZplzNrQjPNlD+U+fDTv6V5Jq/y4O9Nndv8FGAKkDM/MIrWyDaqCttGcV+qgsEyURlefdF+9cSXW6h9OuXjJ8MOHpjqiKZn" +
		"BBjo4SvEVugQid6MEi/xPif4jPpMLDyA5wiAOl+kbBYn5y60g0a+LWmqKkHEMFlBNSuq/bZDjZ5Qn714Rb3O2gcl56Oq60D3U2cFE1VCciTVXCG0oqQd" +
		"V4dfgsn0qzAmO6pmMfZAL+OUG5vmi346vctrCfjaToQrczVz7L4BTkd9rIGuAZZZxr1Z5QIDAQAB"))
	return Must(x509.ParsePKIXPublicKey(der))
}
