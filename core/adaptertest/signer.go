package adaptertest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
)

// signer is somebody who holds a secret. Nothing of package sign is in what it signs.
type signer struct {
	id, owner string
	secret    []byte
}

func newSigner(id, owner, secret string) *signer {
	sum := sha256.Sum256([]byte("adaptertest " + secret))
	return &signer{id, owner, sum[:]}
}

// The signers. The verifier knows the first three.
var (
	demo    = newSigner("demo", "demo", "demo")
	newDemo = newSigner("demo-2", "demo", "demo's next key")
	bob     = newSigner("bob", "bob", "bob")
	forger  = newSigner("demo", "demo", "forged")
)

// ring is what the verifier knows.
func ring() *sign.Ring {
	r := sign.Must(sign.NewRing())
	for _, p := range []*signer{demo, newDemo, bob} {
		if err := r.Add(sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: p.id, Owner: p.owner}, p.secret))); err != nil {
			panic(err) // the suite's own
		}
	}
	return r
}

// noon is the verifier's clock, and when messages are signed.
var noon = time.Unix(1700000000, 0)

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// sign puts the signature in that the message, as it stands, has to have by the definition of v1.
func (m *message) sign() {
	mac := hmac.New(sha256.New, m.signer.secret)
	mac.Write([]byte(m.base()))
	m.set("X-Signature", " v1="+hex.EncodeToString(mac.Sum(nil)))
}

// base is what v1 signs.
func (m *message) base() string {
	path, query, _ := strings.Cut(m.target, "?")
	host := strings.ToLower(m.value("Host"))
	if m.signs != nil {
		host, path, query = m.signs[0], m.signs[1], m.signs[2]
	}
	digest := sha256.Sum256(m.body)
	list := m.value("X-Signed-Headers")
	lines := []string{
		"v1", m.value("X-Key-Id"), m.method, host, path, query, m.value("X-Timestamp"),
		m.value("X-Nonce"), hex.EncodeToString(digest[:]), list,
	}
	if list != "" {
		for _, name := range strings.Split(list, ";") {
			lines = append(lines, name+":"+m.value(name))
		}
	}
	return strings.Join(lines, "\n")
}
