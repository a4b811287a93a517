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

// Seal says under which keys an engine keeps what customers have sent and got: who reads the store, or a dump of it, can't read
// results, steps, remarks and settled answers, and can't guess parameters by their digests. Users, the keys that clients have
// chosen, routes, names of policies and times stay readable. See docs/sealing.md: what is protected, in which order to switch it
// on, and the format.
//
// Results, steps and remarks are encrypted with AES-256-GCM, each under a key that is made (HKDF) of one of Keys, of what it is, and of
// the stored key. So none is good in another place, and no number of records is too many for a key. Digests of parameters are
// HMAC-SHA-256, in place of [Policy].Digest. All of it works under FIPS 140.
//
// What can't be opened (it is sealed under a key that Keys does not have, was changed or moved, or is not sealed) is an error by
// errors.Is [ErrSealed], in an event. A duplicate whose result it is gets 409 result_unavailable (that of a [SignedEvent] 200 without a
// body). An operation whose steps it is does not begin again: it gets 503 store_unavailable, also under FailOpen, until the key is
// back. A remark reads "(unreadable)".
type Seal struct {
	// Keys are the ring, newest first; the same in all processes. The first seals, and all open. Each has at least 32 random bytes, and a
	// name that is stored with what it has sealed. To rotate, append the new key; when all processes have it, move it to the front; and
	// remove the old one when nothing that it has sealed is kept any more: after the longest Retention or RememberAbandoned.
	Keys []Secret
	// DigestKey is the key of digests, of at least 32 random bytes. It does not rotate: under another one every operation whose key is
	// made of parameters is a new one, and every key that a client has chosen, and used, is refused as reused (422).
	DigestKey []byte `json:"-"`
	// AllowUnsealed reads what is not sealed as well: what was stored before there was a Seal, and what somebody else writes into
	// the store. It also knows the fingerprints of before. Switch it off when all of that has gone, after the longest Retention
	// or RememberAbandoned: without it a retry of such an operation, under a key that its client has chosen, is refused as reused
	// (422), and what was free begins anew.
	AllowUnsealed bool
	// OpenOnly opens, and seals nothing: for the deployment before the one that seals, so that each reads what the other stores, and for
	// the one before a Seal is taken away. It needs AllowUnsealed.
	OpenOnly bool
}

// Format implements [fmt.Formatter]. Every verb prints the names of the keys alone. See [Secret.Format].
func (s Seal) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{Keys:%v}", s.Keys) }

// ErrSealed is behind an error for something in the store that can't be opened, see [Seal]. Such an error names no more of it than the key
// under which it is sealed.
var ErrSealed = errors.New("idem: what is stored can't be opened")

// ParseSeal reads a Seal from text, as the command idem does from IDEM_SEAL: entries, separated by commas, each a name, '=' and 32 or more
// bytes in base64. That called digest is the DigestKey; the others are the Keys, newest first. The entries allow-unsealed and open-only,
// without a value, mean AllowUnsealed and OpenOnly.
//
//	digest=<base64>,2027-01=<base64>,2026-07=<base64>
//
// An error names an entry by its number, or a key by its name, and holds nothing else of them. Empty text is an error: leave
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
			return nil, fmt.Errorf("idem: entry %d of the text of a Seal is called %s: digest is written in small letters", i+1, name)
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
	f.addIf(len(s.Keys) == 0, "Seal.Keys", "has none; one is needed to seal")
	f.addIf(s.OpenOnly && !s.AllowUnsealed, "Seal.OpenOnly",
		"is set without AllowUnsealed: the engine could not read what it stores itself")
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

// Seal returns what a store keeps of value, which it commits for r in a transaction of its own: value sealed under [Config].Seal and
// bound to r's key, or value itself if nothing is sealed. It is for stores, as is [Run.Open]. value must not begin with the byte 6, which
// tells what is sealed. r may be nil.
func (r *Run) Seal(value []byte) []byte {
	if r == nil {
		return value
	}
	return r.guard.engine.store.Seal(r.key.raw, value)
}

// Open returns the value of which Seal has made stored, in this run or an earlier one of the operation. The error is [ErrSealed].
func (r *Run) Open(stored []byte) ([]byte, error) {
	if r == nil {
		return stored, nil
	}
	return r.guard.engine.store.Open(r.key.raw, stored)
}
