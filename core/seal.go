package core

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/internal/view"
	"github.com/idem-go/idem/core/store"
)

// Seal says under which keys an engine keeps what customers have sent and got: who reads the store, or a dump of it, can't read
// results, steps, remarks and settled answers, and can't guess parameters by their digests. Users, the keys that clients have chosen,
// routes, names of policies and times stay readable. See docs/sealing.md: what is protected, in which order to switch it on, and the format.
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
	// AllowUnsealed reads what is not sealed as well: what was stored before there was a Seal, and what somebody else writes into the
	// store. It also knows the fingerprints of before. Switch it off when all of that has gone, after the longest Retention or
	// RememberAbandoned: without it a retry of such an operation, under a key that its client has chosen, is refused as reused (422), and what
	// was free begins anew.
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
// An error names an entry by its number, or a key by its name, and holds nothing else of them. Empty text is an error: leave Config.Seal nil
// to seal nothing.
func ParseSeal(text string) (*Seal, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("idem: the text of a Seal is empty; a name, '=' and base64 (openssl rand -base64 32) for each key are needed")
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
			return nil, fmt.Errorf("idem: entry %d of the text of a Seal is neither a name, '=' and base64 (openssl rand -base64 32), nor allow-unsealed or open-only", i+1)
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
	(&Config{Seal: &s}).sealer(&f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return &s, nil
}

// sealer checks c.Seal, and returns what it does; nil if there is none.
func (c *Config) sealer(f *faults) *sealer {
	if c.Seal == nil {
		return nil
	}
	s := &sealer{ring: newRing(f, "Seal.Keys", c.Seal.Keys), digests: canon.NewMAC(c.Seal.DigestKey), allowUnsealed: c.Seal.AllowUnsealed, openOnly: c.Seal.OpenOnly}
	for i := range s.ring {
		mark := s.ring[i].mac.Append(nil, []byte("idem seal mark"))
		s.marks = append(s.marks, view.SealedRemark+"."+base64.RawURLEncoding.EncodeToString(mark[:9]))
	}
	f.addIf(len(c.Seal.Keys) == 0, "Seal.Keys", "has none; one is needed to seal")
	f.addIf(c.Seal.OpenOnly && !c.Seal.AllowUnsealed, "Seal.OpenOnly", "is set without AllowUnsealed: the engine could not read what it stores itself")
	f.addSecret("Seal.DigestKey", "", c.Seal.DigestKey)
	for i, k := range c.Seal.Keys {
		f.addIf(bytes.Equal(k.Key, c.Seal.DigestKey), "Seal.DigestKey", "is the key at %d, too", i)
	}
	return s
}

// sealer seals and opens. A nil one seals nothing.
type sealer struct {
	ring          []ringSecret // newest first
	marks         []string     // what is stored for no remark: it tells the key. Of each in ring
	digests       *canon.MAC
	allowUnsealed bool
	openOnly      bool
}

// seals reports whether s seals, and does not only open.
func (s *sealer) seals() bool { return s != nil && !s.openOnly }

// forms returns what the engine writes of a fingerprint, which has another form when it is sealed, and the form that it knows as well: that
// of processes before or after it in a rollout. Zero: it knows no other.
func forms[T any](s *sealer, plain, sealed T) (own, other T) {
	switch {
	case s.openOnly:
		return plain, sealed
	case s.allowUnsealed:
		return sealed, plain
	}
	return sealed, other
}

// What is sealed is the byte resultSealed, the name of the key after its length in a byte, a nonce of 12 bytes, and the ciphertext with
// its tag. All before the nonce is the additional data. A kind is a part of the key's derivation. docs/sealing.md promises this format.
const (
	sealsResult = "result"
	sealsSteps  = "steps"
	sealsRemark = "remark"
	sealsValue  = "value" // of Run.Seal

	sealOverhead = 2 + 12 + 16 // and the name
)

// boundKey is how much of a stored key counts: a SQL store keeps no more of a longer one for an [store.Inspector].
const boundKey = 2016

// aead returns the cipher of one value. Its key is that of HKDF-Expand (RFC 5869) with SHA-256 under the ring's key.
func (k *ringSecret) aead(kind, key string) cipher.AEAD {
	info := make([]byte, 0, 256)
	info = append(append(info, "idem seal 1\x00"...), kind...)
	info = append(append(info, 0), key[:min(len(key), boundKey)]...)
	info = append(info, 1) // the counter of HKDF
	block, err := aes.NewCipher(k.mac.Append(info[len(info):], info))
	if err != nil {
		panic(err) // of another length than 32
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of another block size than that of AES
	}
	return aead
}

// digest returns the digest of text, bound to a key as canon.Rules binds that of parameters.
func (s *sealer) digest(key Key, text []byte) string {
	return hex.EncodeToString(s.digests.Append(nil, []byte(key.raw), []byte{'\n'}, text))
}

// seal seals what the store keeps under key. Nothing stays nothing.
func (s *sealer) seal(kind, key string, plain []byte) []byte {
	if !s.seals() || len(plain) == 0 {
		return plain
	}
	return s.ring[0].seal(kind, key, plain)
}

// seal seals what the store keeps under key with this secret.
func (k *ringSecret) seal(kind, key string, plain []byte) []byte {
	sealed := make([]byte, 0, sealOverhead+len(k.name)+len(plain))
	sealed = append(append(sealed, resultSealed, byte(len(k.name))), k.name...)
	return k.aead(kind, key).Seal(sealed, nil, plain, sealed)
}

// open opens what the store has under key. The error is an ErrSealed.
func (s *sealer) open(kind, key string, stored []byte) ([]byte, error) {
	switch isSealed := len(stored) > 0 && stored[0] == resultSealed; {
	case len(stored) == 0, !isSealed && (s == nil || s.allowUnsealed):
		return stored, nil
	case !isSealed:
		return nil, fmt.Errorf("%w: %s: not sealed, and Config.Seal does not say AllowUnsealed", ErrSealed, kind)
	case s == nil:
		return nil, fmt.Errorf("%w: %s: sealed, and there is no Config.Seal", ErrSealed, kind)
	case len(stored) < 2 || len(stored) < 2+int(stored[1]):
		return nil, s.changed(kind, "")
	}
	header := stored[:2+int(stored[1])]
	name := string(header[2:])
	for i := range s.ring {
		if k := &s.ring[i]; k.name == name {
			plain, err := k.aead(kind, key).Open(nil, nil, stored[len(header):], header)
			if err != nil {
				return nil, s.changed(kind, name)
			}
			return plain, nil
		}
	}
	if _, isName := canon.ServicePrefix(name); !isName {
		return nil, s.changed(kind, "")
	}
	return nil, fmt.Errorf("%w: %s: sealed under the key %q, which Config.Seal does not have", ErrSealed, kind, name)
}

func (s *sealer) changed(kind, name string) error {
	if name != "" {
		name = fmt.Sprintf(", or sealed under another key of the name %q", name)
	}
	return fmt.Errorf("%w: %s: changed, or another operation's%s", ErrSealed, kind, name)
}

// result opens a result. Of one that can't be opened it returns a text that tells unopened why; no result that is sealed begins like it, for a
// name is never empty.
func (s *sealer) result(key string, stored []byte) []byte {
	plain, err := s.open(sealsResult, key, stored)
	if err != nil {
		return append([]byte{resultSealed, 0}, strings.TrimPrefix(err.Error(), ErrSealed.Error()+": ")...)
	}
	return plain
}

// unopened returns why a result could not be opened; nil if it could, or is none.
func unopened(result []byte) error {
	switch {
	case len(result) == 0 || result[0] != resultSealed:
		return nil
	case len(result) > 1 && result[1] == 0:
		return fmt.Errorf("%w: %s", ErrSealed, result[2:])
	}
	_, err := (*sealer)(nil).open(sealsResult, "", result)
	return err
}

// maxRemark is how many bytes a store keeps of a remark, see [store.About].
const maxRemark = 255

const unreadableRemark = "(unreadable)"

// sealRemark cuts the remark so that it is a remark when it is sealed. No remark is stored as the mark of the key, so that
// each record shows that the service seals, and under which key.
func (s *sealer) sealRemark(key, remark string) string {
	switch {
	case !s.seals():
		return remark
	case remark == "":
		return s.marks[0]
	}
	return s.ring[0].sealRemark(key, remark)
}

func (k *ringSecret) sealRemark(key, remark string) string {
	room := base64.RawURLEncoding.DecodedLen(maxRemark-len(view.SealedRemark)) - sealOverhead - len(k.name)
	remark = strings.ToValidUTF8(remark[:min(len(remark), room)], "")
	return view.SealedRemark + base64.RawURLEncoding.EncodeToString(k.seal(sealsRemark, key, []byte(remark)))
}

func (s *sealer) openRemark(key, stored string) string {
	if !strings.HasPrefix(stored, view.SealedRemark) && (stored == "" || s.allowUnsealed) {
		return stored
	}
	remark, _, err := s.remarkOf(key, stored)
	if err != nil {
		return unreadableRemark
	}
	return remark
}

// remarkOf opens a remark that is sealed, or stands for none, and returns the key that has made it.
func (s *sealer) remarkOf(key, stored string) (remark string, of *ringSecret, err error) {
	text, isSealed := strings.CutPrefix(stored, view.SealedRemark)
	if i := slices.Index(s.marks, stored); i >= 0 {
		return "", &s.ring[i], nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !isSealed || len(sealed) < 2 || sealed[0] != resultSealed {
		return "", nil, s.changed(sealsRemark, "")
	}
	plain, err := s.open(sealsRemark, key, sealed)
	if err != nil {
		return "", nil, err
	}
	i := slices.IndexFunc(s.ring, func(k ringSecret) bool { return k.name == string(sealed[2:2+sealed[1]]) })
	return string(plain), &s.ring[i], nil
}

// Seal returns what a store keeps of value, which it commits for r in a transaction of its own: value sealed under [Config].Seal and
// bound to r's key, or value itself if nothing is sealed. It is for stores, as is [Run.Open]. value must not begin with the byte 6, which
// tells what is sealed. r may be nil.
func (r *Run) Seal(value []byte) []byte {
	if r == nil {
		return value
	}
	return r.guard.engine.seal.seal(sealsValue, r.key.raw, value)
}

// Open returns the value of which Seal has made stored, in this run or an earlier one of the operation. The error is [ErrSealed].
func (r *Run) Open(stored []byte) ([]byte, error) {
	if r == nil {
		return stored, nil
	}
	return r.guard.engine.seal.open(sealsValue, r.key.raw, stored)
}

// sealedStore is a store as the engine sees it that seals: what it is given is sealed, and what it has is opened.
type sealedStore struct {
	store.Store
	*sealer
	can store.Capabilities
}

// sealed returns s, with what it can do, as an engine sees it that seals.
func (s *sealer) sealed(inner store.Store, can store.Capabilities) *sealedStore {
	outer := &sealedStore{Store: inner, sealer: s}
	if checkpoint := can.Checkpoint; checkpoint != nil {
		can.Checkpoint = func(ctx context.Context, key string, owner store.Owner, steps []byte) error {
			return checkpoint(ctx, key, owner, s.seal(sealsSteps, key, steps))
		}
	}
	if outlive := can.Outlive; outlive != nil {
		can.Outlive = func(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
			return outlive(ctx, key, owner, s.seal(sealsResult, key, result), retention, known)
		}
	}
	if recall := can.Recall; recall != nil {
		can.Recall = func(key []byte) (store.Grant, uint64, bool) {
			grant, raw, ok := recall(key)
			if ok {
				key := string(key)
				grant.Result, grant.Remark = s.result(key, grant.Result), s.openRemark(key, grant.Remark)
			}
			return grant, raw, ok
		}
		can.RecallFor = outer
	}
	if can.Inspect != nil {
		can.Inspect = &sealedInspector{can.Inspect, s}
	}
	outer.can = can
	return outer
}

// Capabilities implements [store.Store].
func (s *sealedStore) Capabilities() store.Capabilities { return s.can }

// Acquire implements [store.Store]. If the steps of the operation can't be opened, nobody is to begin it again: the claim is given back.
func (s *sealedStore) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	claim.Remark = s.sealRemark(key, claim.Remark)
	grant, err := s.Store.Acquire(ctx, key, claim)
	if err != nil {
		return grant, err
	}
	if grant.Steps, err = s.open(sealsSteps, key, grant.Steps); err != nil {
		if lost := s.Store.Release(ctx, key, claim.Owner); lost != nil { // the lease has to pass
			err = fmt.Errorf("%w; and the claim was not given back: %w", err, lost)
		}
		return store.Grant{}, err
	}
	grant.Result, grant.Remark = s.result(key, grant.Result), s.openRemark(key, grant.Remark)
	return grant, nil
}

// Complete implements [store.Store].
func (s *sealedStore) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	return s.Store.Complete(ctx, key, owner, s.seal(sealsResult, key, result), retention)
}

// sealedInspector is a [store.Inspector] as the engine sees it that seals.
type sealedInspector struct {
	store.Inspector
	*sealer
}

// Lookup implements [store.Inspector].
func (i *sealedInspector) Lookup(ctx context.Context, key string) (store.Record, error) {
	r, err := i.Inspector.Lookup(ctx, key)
	r.Result, r.Remark = i.result(key, r.Result), i.openRemark(key, r.Remark)
	return r, err
}

// List implements [store.Inspector].
func (i *sealedInspector) List(ctx context.Context, q store.Query, cursor string) ([]store.Record, string, error) {
	page, next, err := i.Inspector.List(ctx, q, cursor)
	for n := range page {
		page[n].Remark = i.openRemark(page[n].Key, page[n].Remark)
	}
	return page, next, err
}

// Change implements [store.Inspector]. What it stores beside a sealed remark is sealed under that one's key, which the service has. If this
// engine can't do that, it stores no remark, and no result.
func (i *sealedInspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	if c.To == 0 { // the record goes
		return i.Inspector.Change(ctx, key, expected, c)
	}
	r, err := i.Inspector.Lookup(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNoRecord) {
		return err
	}
	if !strings.HasPrefix(r.Remark, view.SealedRemark) {
		c.Result = i.seal(sealsResult, key, c.Result)
		if c.Remark != "" { // else that of the record stays
			c.Remark = i.sealRemark(key, c.Remark)
		}
		return i.Inspector.Change(ctx, key, expected, c)
	}
	_, of, err := i.remarkOf(key, r.Remark)
	switch {
	case err == nil && !i.openOnly:
		if len(c.Result) > 0 {
			c.Result = of.seal(sealsResult, key, c.Result)
		}
		if c.Remark != "" {
			c.Remark = of.sealRemark(key, c.Remark)
		}
	case c.To == store.Done && err != nil:
		return fmt.Errorf("%w: %w", view.ErrSealed, err)
	case c.To == store.Done:
		return fmt.Errorf("%w: OpenOnly", view.ErrSealed)
	default:
		c.Remark = ""
	}
	return i.Inspector.Change(ctx, key, expected, c)
}
