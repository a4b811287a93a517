package adaptertest

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
)

// signer is somebody who holds a secret: what the verifier knows as a key.
type signer struct {
	id      string
	secret  []byte             // of HMAC-SHA256
	private ed25519.PrivateKey // of Ed25519
}

// sign puts the signature in that the message, as it stands, has to have by its scheme.
func (m *message) sign() {
	if m.rfc9421 {
		m.sign9421()
		return
	}
	m.set("X-Signature", " "+m.signer.sign(m))
}

// sign returns what v1 has in X-Signature for the message as it stands.
func (p *signer) sign(m *message) string { return p.tag() + "=" + hex.EncodeToString(p.mac(m)) }

// owner is whose key it is.
func (p *signer) owner() string {
	if p == newDemo {
		return demo.id
	}
	return p.id
}

func (p *signer) tag() string {
	if p.private != nil {
		return "v1-ed25519"
	}
	return "v1"
}

// mac is the signature of the message as it stands, line by line as its scheme is defined. Nothing of package
// sign is in it.
func (p *signer) mac(m *message) []byte {
	base := m.base(p.tag())
	if m.rfc9421 {
		base = m.base9421()
	}
	if p.private != nil {
		return ed25519.Sign(p.private, []byte(base))
	}
	return hmacOf(p.secret, []byte(base))
}

func hmacOf(secret, text []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(text)
	return h.Sum(nil)
}

// base is what v1 signs.
func (m *message) base(firstLine string) string {
	path, query, _ := strings.Cut(m.target, "?")
	digest := sha256.Sum256(m.body)
	list := m.value("X-Signed-Headers")
	lines := []string{
		firstLine,
		m.value("X-Key-Id"),
		m.method,
		or(m.signedHost, strings.ToLower(m.value("Host"))),
		or(m.signedPath, path),
		or(m.signedQuery, query),
		m.value("X-Timestamp"),
		m.value("X-Nonce"),
		hex.EncodeToString(digest[:]),
		list,
	}
	if list != "" {
		for _, name := range strings.Split(list, ";") {
			lines = append(lines, name+":"+m.value(name))
		}
	}
	return strings.Join(lines, "\n")
}

func or(given *string, otherwise string) string {
	if given != nil {
		return *given
	}
	return otherwise
}

func secretOf(name string) []byte {
	sum := sha256.Sum256([]byte("adaptertest " + name))
	return []byte(hex.EncodeToString(sum[:]))
}

// The signers. Their secrets are the suite's own.
var (
	demo     = &signer{id: "demo", secret: []byte("0123456789abcdef0123456789abcdef")}
	bob      = &signer{id: "bob", secret: secretOf("bob")}
	dotted   = &signer{id: "demo.b", secret: secretOf("dotted")}
	dashed   = &signer{id: "demo-b", secret: secretOf("dashed")}
	joined   = &signer{id: "demob", secret: secretOf("joined")}
	twin     = &signer{id: "twin", secret: demo.secret} // who has been given the same secret
	oldTwice = &signer{id: "twice", secret: secretOf("twice, old")}
	newTwice = &signer{id: "twice", secret: secretOf("twice, new")}
	newDemo  = &signer{id: "demo-2", secret: secretOf("demo, new")} // demo's next key
	revoked  = &signer{id: "revoked", secret: secretOf("revoked")}
	future   = &signer{id: "future", secret: secretOf("future")}
	past     = &signer{id: "past", secret: secretOf("past")}
	stranger = &signer{id: "stranger", secret: secretOf("stranger")} // not known to the verifier
	ed       = &signer{id: "ed", private: ed25519.NewKeyFromSeed(secretOf("ed")[:ed25519.SeedSize])}

	signers = []*signer{demo, bob, dotted, dashed, joined, twin, oldTwice, newTwice, newDemo, revoked, future, past, stranger, ed}
)

// edPublic is what everybody knows of ed.
func edPublic() ed25519.PublicKey { return ed.private.Public().(ed25519.PublicKey) }

// ring is what the verifier knows. future is good from a minute after noon, past until noon.
func ring() *sign.Ring {
	r := sign.Must(sign.NewRing(sign.Must(sign.NewKey(sign.KeyOptions{ID: ed.id}, edPublic()))))
	add := func(p *signer, from, until time.Time) {
		key := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: p.id, Owner: p.owner(), ValidFrom: from, ValidUntil: until}, p.secret))
		if err := r.Add(key); err != nil {
			panic(err) // the suite's own
		}
	}
	for _, p := range []*signer{demo, bob, dotted, dashed, joined, twin, oldTwice, newTwice, newDemo, revoked} {
		add(p, time.Time{}, time.Time{})
	}
	add(future, noon.Add(minute), time.Time{})
	add(past, time.Time{}, noon)
	r.Revoke(revoked.id)
	return r
}
