package core

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/internal/sealed"
)

// Seal holds the keys with which an engine protects what customers have sent and received. A reader of the store, or of a dump of it,
// can't read results, steps, remarks and settled answers, and can't guess parameters by their digests. Users, the keys that clients
// have chosen, routes, names of policies and times stay readable. See docs/records.md: what is protected, in which order to switch
// it on, and the format.
//
// Results, steps and remarks are encrypted with AES-256-GCM. The key of each is derived (HKDF) from one of Keys, from what it is,
// and from the stored key. So none can be moved to another place, and no number of records is too many for a key. Digests of
// parameters are HMAC-SHA-256, in place of [Policy].Digest. All of it works under FIPS 140.
//
// Stored data can't be opened if it is sealed under a key that Keys does not have, was changed or moved, or is not sealed. That is
// an error by errors.Is [ErrSealed], in an event. A duplicate whose result can't be opened gets 409 result_unavailable (that of a
// [SignedEvent] 200 without a body). An operation whose steps can't be opened does not begin again: it gets 503 store_unavailable,
// even under FailOpen, until the key is back. Such a remark reads "(unreadable)".
type Seal struct {
	// Keys are the ring, newest first, and the same in all processes. The first seals, and all open. Each has at least 32 random
	// bytes, and a name that is stored with everything that it has sealed. To rotate, append the new key. When all processes have
	// it, move it to the front. Remove the old one when nothing that it has sealed is kept any more: after the longest Retention or
	// RememberAbandoned.
	Keys []Secret
	// DigestKey is the key of digests, of at least 32 random bytes. It does not rotate. Under another one every operation whose key
	// is made of parameters is new, and every chosen key that was used before is refused as reused (422).
	DigestKey []byte `json:"-"`
	// AllowUnsealed reads unsealed data as well: what was stored before there was a Seal, and what somebody else writes into the
	// store. It also recognises fingerprints made before. Switch it off when all of that has gone, after the longest Retention or
	// RememberAbandoned. Without it a retry of such an operation under a chosen key is refused as reused (422), and a free record
	// begins a new operation.
	AllowUnsealed bool
	// OpenOnly opens, and seals nothing. Use it in the deployment before the one that seals, so that each reads what the other
	// stores, and in the one before a Seal is removed. It needs AllowUnsealed.
	OpenOnly bool
}

// Format implements [fmt.Formatter]. Every verb prints only the names of the keys. See [Secret.Format].
func (s Seal) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{Keys:%v}", s.Keys) }

// ErrSealed is wrapped by errors for stored data that can't be opened, see [Seal]. Such an error names nothing of it but the key
// under which it is sealed.
var ErrSealed = errors.New("idem: the stored data can't be opened")

// ParseSeal reads a Seal from text, as the command idem does from IDEM_SEAL. The text has entries, separated by commas. Each is a
// name, '=' and 32 or more bytes in base64. The entry called digest is the DigestKey; the others are the Keys, newest first. The
// entries allow-unsealed and open-only, without a value, mean AllowUnsealed and OpenOnly.
//
//	digest=<base64>,2027-01=<base64>,2026-07=<base64>
//
// An error names an entry by its number, or a key by its name, and contains nothing else of them. Empty text is an error: leave
// Config.Seal nil to seal nothing.
func ParseSeal(text string) (*Seal, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("idem: the text of a Seal is empty; it needs a name, '=' and base64 (openssl rand -base64 32) for each key")
	}
	var s Seal
	for i, entry := range strings.Split(text, ",") {
		name, value, isKey := strings.Cut(strings.TrimSpace(entry), "=")
		key, err := base64.StdEncoding.DecodeString(value)
		_, named := canon.ServicePrefix(name)
		switch {
		case !isKey && name == "allow-unsealed":
			s.AllowUnsealed = true
		case !isKey && name == "open-only":
			s.OpenOnly = true
		case err != nil || len(key) == 0 || !named: // what is taken for a name may be a key: "<base64>="
			return nil, fmt.Errorf("idem: entry %d of the text of a Seal is neither a name, '=' and base64 (openssl rand -base64 32), "+
				"nor allow-unsealed or open-only", i+1)
		case name != "digest" && strings.EqualFold(name, "digest"):
			return nil, fmt.Errorf("idem: entry %d of the text of a Seal is called %s: write digest in lower case", i+1, name)
		case name != "digest":
			s.Keys = append(s.Keys, Secret{Name: name, Key: key})
		case s.DigestKey != nil:
			return nil, fmt.Errorf("idem: entry %d of the text of a Seal is a second digest", i+1)
		default:
			s.DigestKey = key
		}
	}
	f := faults{of: "Config"}
	(&Config{Seal: &s}).sealing(&f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return &s, nil
}

// sealing checks c.Seal, and returns what it does. There are no digests if it is nil.
func (c *Config) sealing(f *faults) (*sealed.Ring, *keyedDigests) {
	if c.Seal == nil {
		return sealed.NewRing(ErrSealed, nil, false, false), nil
	}
	s := *c.Seal
	var keys []sealed.Key
	for _, k := range newRing(f, "Seal.Keys", s.Keys) {
		keys = append(keys, sealed.Key{Name: k.name, MAC: k.mac})
	}
	f.addIf(len(s.Keys) == 0, "Seal.Keys", "is empty; sealing needs a key")
	f.addIf(s.OpenOnly && !s.AllowUnsealed, "Seal.OpenOnly",
		"is set without AllowUnsealed: the engine could not read its own records")
	f.addSecret("Seal.DigestKey", "", s.DigestKey)
	for i, k := range s.Keys {
		f.addIf(bytes.Equal(k.Key, s.DigestKey), "Seal.DigestKey", "is the key at %d, too", i)
	}
	return sealed.NewRing(ErrSealed, keys, s.AllowUnsealed, s.OpenOnly),
		&keyedDigests{mac: canon.NewMAC(s.DigestKey), knowsPlain: s.AllowUnsealed, writesPlain: s.OpenOnly}
}

// keyedDigests makes the digests of parameters under a [Seal].
type keyedDigests struct {
	mac         *canon.MAC
	knowsPlain  bool // fingerprints of before there was a Seal count, too
	writesPlain bool // keys and fingerprints are still, or again, those without a Seal
}

// written reports whether keyed digests are what the engine writes.
func (d *keyedDigests) written() bool { return d != nil && !d.writesPlain }

// forms returns what the engine writes of a fingerprint, which has another form when it is keyed, and the form that it knows as well: that
// of processes before or after it in a rollout. Zero: it knows no other.
func forms[T any](d *keyedDigests, plain, keyed T) (own, other T) {
	switch {
	case d.writesPlain:
		return plain, keyed
	case d.knowsPlain:
		return keyed, plain
	}
	return keyed, other
}

// of returns the digest of text, bound to a key as canon.Rules binds that of parameters.
func (d *keyedDigests) of(key Key, text []byte) string {
	return hex.EncodeToString(d.mac.Append(nil, []byte(key.raw), []byte{'\n'}, text))
}

// Seal returns the form in which a store keeps value, which it commits for r in a transaction of its own. That is value sealed
// under [Config].Seal and bound to r's key, or value itself if nothing is sealed. It is for stores, as is [Run.Open]. value must
// not begin with the byte 6, which marks sealed values. r may be nil.
func (r *Run) Seal(value []byte) []byte {
	if r == nil {
		return value
	}
	return r.guard.engine.store.Seal(r.key.raw, value)
}

// Open returns the value from which Seal has made stored, in this run or an earlier one of the operation. The error is [ErrSealed].
func (r *Run) Open(stored []byte) ([]byte, error) {
	if r == nil {
		return stored, nil
	}
	return r.guard.engine.store.Open(r.key.raw, stored)
}
