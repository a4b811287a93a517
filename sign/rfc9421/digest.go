package rfc9421

import (
	"crypto/sha256"
	"crypto/sha512"

	"github.com/dunglas/httpsfv"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/form"
)

// The secure digest algorithms (RFC 9530, section 5). Weak and unknown ones are ignored.
const (
	algorithmSHA256 = "sha-256"
	algorithmSHA512 = "sha-512"
)

// digests are the digests in Content-Digest (RFC 9530, section 2).
type digests struct {
	sha256 [sha256.Size + 2]byte // the decoder needs a little more than it writes
	sha512 [sha512.Size + 2]byte
	has    digestSet
}

type digestSet uint8

const (
	hasSHA256 digestSet = 1 << iota
	hasSHA512
)

// parse parses Content-Digest, which is covered.
func (d *digests) parse(m *sign.Message, base64URL bool) error {
	value, lines := m.Field(headerDigest)
	switch {
	case lines == 0:
		return sign.Errorf(sign.ReasonUncovered, "%s is listed as covered, but not present", contentDigest.Lower)
	case lines > 1:
		return sign.Errorf(sign.CodeDuplicateHeader, "%s", headerDigest)
	}
	value = form.Trim(value)
	if base64URL {
		value = fromBase64URL(value)
	}
	if name, text := cutMember(value); d.set(name, text) {
		return nil
	}
	return d.parseAny(value)
}

// parseAny parses a Content-Digest with several digests, or one that is not in its serialised form.
func (d *digests) parseAny(value string) error {
	*d = digests{}
	dictionary, err := parseDictionary(headerDigest, value)
	if err != nil {
		return err
	}
	for _, name := range [...]string{algorithmSHA256, algorithmSHA512} {
		member, ok := dictionary.Get(name)
		if !ok {
			continue
		}
		text, err := httpsfv.Marshal(member)
		if err != nil || !d.set(name, text) {
			return sign.Errorf(sign.CodeMalformed, "%s: %s must be a byte sequence of its length, without parameters", headerDigest, name)
		}
	}
	if d.has == 0 {
		return sign.Errorf(sign.ReasonUncovered, "%s has neither sha-256 nor sha-512: it does not cover the body", headerDigest)
	}
	return nil
}

// set sets the digest of one of the known algorithms.
func (d *digests) set(name, text string) bool {
	switch name {
	case algorithmSHA256:
		b, ok := decode(d.sha256[:0], text)
		if !ok || len(b) != sha256.Size {
			return false
		}
		d.has |= hasSHA256
		return true
	case algorithmSHA512:
		b, ok := decode(d.sha512[:0], text)
		if !ok || len(b) != sha512.Size {
			return false
		}
		d.has |= hasSHA512
		return true
	}
	return false
}

// check compares each digest with the body.
func (d *digests) check(body []byte) error {
	if d.has&hasSHA256 != 0 && sha256.Sum256(body) != [sha256.Size]byte(d.sha256[:]) {
		return sign.Errorf(sign.ReasonDigestMismatch, "the body has another %s digest", algorithmSHA256)
	}
	if d.has&hasSHA512 != 0 && sha512.Sum512(body) != [sha512.Size]byte(d.sha512[:]) {
		return sign.Errorf(sign.ReasonDigestMismatch, "the body has another %s digest", algorithmSHA512)
	}
	return nil
}
