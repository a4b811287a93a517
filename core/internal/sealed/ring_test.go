package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/storetest"
)

func secret(name string) []byte { return []byte("0123456789abcdef0123456789abcdef" + name) }

func newRing(allow bool, names ...string) *Ring {
	var keys []Key
	for _, name := range names {
		keys = append(keys, Key{name, canon.NewMAC(secret(name))})
	}
	return NewRing(errUnopened, keys, allow, false)
}

var errUnopened = errors.New("unopened")

// TestStore: what seals is a store, whatever its ring.
func TestStore(t *testing.T) {
	for name, ring := range map[string]*Ring{"sealed": newRing(false, "b", "a"), "no keys": newRing(false)} {
		t.Run(name, func(t *testing.T) {
			instance := func(tb testing.TB, records int) storetest.Instance {
				clock := storetest.NewClock()
				inner, err := memstore.New(memstore.Config{MaxEntries: records, Now: clock.Now})
				require.NoError(tb, err)
				return storetest.Instance{Store: New(inner, ring), Advance: clock.Advance, Encrypts: ring.seals()}
			}
			storetest.Run(t, func(tb testing.TB) storetest.Instance { return instance(tb, 0) }, storetest.Features{Bounded: instance})
		})
	}
}

// TestSealFormat: it is the one of docs/records.md, which another program can open.
func TestSealFormat(t *testing.T) {
	const key = "idem:shop:U=aliceM=POST%20/ordersK=k-1"
	stored := newRing(false, "b", "a").seal(ofResult, key, []byte("\x02plain"))
	require.Equal(t, "\x06\x01b", string(stored[:3]))

	derived, err := hkdf.Expand(sha256.New, secret("b"), "idem seal 1\x00result\x00"+key, 32)
	require.NoError(t, err)
	block, err := aes.NewCipher(derived)
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	plain, err := gcm.Open(nil, stored[3:15], stored[15:], stored[:3])
	require.NoError(t, err)
	assert.Equal(t, "\x02plain", string(plain))
	assert.Len(t, stored, overhead+1+len(plain))
}

// TestSealOfLongKeys: a SQL store tells an operator of a long key only how it begins, and a digest.
func TestSealOfLongKeys(t *testing.T) {
	s, key := newRing(false, "a"), strings.Repeat("k", 3000)
	told := key[:boundKey] + strings.Repeat("\xd1", 32)
	assert.Equal(t, "order 17", s.openRemark(told, s.sealRemark(key, "order 17")))
	assert.Equal(t, unreadable, s.openRemark("j"+told[1:], s.sealRemark(key, "order 17")))
}

// TestSealOpensNothingElse: each byte that is changed, each that is missing, another key, kind or place.
func TestSealOpensNothingElse(t *testing.T) {
	s := newRing(false, "b", "a")
	stored := s.seal(ofResult, "k", []byte("secret"))
	plain, err := newRing(false, "c", "b").open(ofResult, "k", stored)
	require.NoError(t, err)
	assert.Equal(t, "secret", string(plain))
	assert.False(t, bytes.Equal(stored, s.seal(ofResult, "k", []byte("secret"))), "the nonce is random")
	assert.Nil(t, s.seal(ofResult, "k", nil), "of nothing there is nothing to seal")

	refused := func(by *Ring, of kind, key string, stored []byte) {
		t.Helper()
		plain, err := by.open(of, key, stored)
		assert.ErrorIs(t, err, errUnopened)
		assert.Nil(t, plain)
		assert.NotContains(t, err.Error(), "secret")
		if of != ofResult {
			return
		}
		grant := store.Grant{State: store.Done, Result: stored}
		by.openGrant(key, &grant)
		assert.ErrorIs(t, grant.Unopened, errUnopened)
		assert.Nil(t, grant.Result)
	}
	for i := range stored {
		for bit := range 8 {
			changed := bytes.Clone(stored)
			changed[i] ^= 1 << bit
			refused(s, ofResult, "k", changed)
		}
		if i > 0 {
			refused(s, ofResult, "k", stored[:i])
		}
	}
	refused(s, ofResult, "k", append(bytes.Clone(stored), 0))
	refused(s, ofResult, "j", stored)
	refused(s, ofSteps, "k", stored)
	refused(s, ofResult, "k", s.seal(ofSteps, "k", []byte("secret")))
	refused(newRing(true, "a"), ofResult, "k", stored)
	refused(newRing(true), ofResult, "k", stored)
	other := newRing(false, "a", "b")
	other.keys[1] = newRing(false, "a").keys[0]
	other.keys[1].Name = "b"
	refused(other, ofResult, "k", stored)

	for _, before := range [][]byte{{1}, []byte("\x02secret")} {
		refused(s, ofResult, "k", before)
		plain, err := newRing(true, "a").open(ofResult, "k", before)
		require.NoError(t, err)
		assert.Equal(t, before, plain)
	}
}

// TestSealOfSteps: a store sees their number, which is bound to them. Steps of earlier builds have none.
func TestSealOfSteps(t *testing.T) {
	s, number := newRing(false, "a"), "\x07\x00\x00\x00\x00\x00\x00\x01"
	for _, plain := range []string{number + "\x01\x06secret", number, "\x01\x06secret\x06secret"} {
		stored := s.seal(ofSteps, "k", []byte(plain))
		assert.Len(t, stored, overhead+1+len(plain))
		n := 0
		if plain[0] == number[0] {
			n = len(number)
			assert.Equal(t, number, string(stored[:n]))
		}
		assert.True(t, isSealed(stored[n:]))
		opened, err := s.open(ofSteps, "k", stored)
		require.NoError(t, err)
		assert.Equal(t, plain, string(opened))
		for i := range stored {
			changed := bytes.Clone(stored)
			changed[i] ^= 1
			opened, err := s.open(ofSteps, "k", changed)
			assert.ErrorIs(t, err, errUnopened)
			assert.Nil(t, opened)
		}
		for _, r := range []*Ring{s, newRing(false)} { // of steps that are not sealed
			opened, err := r.open(ofSteps, "k", []byte(plain))
			assert.Equal(t, len(r.keys) > 0, err != nil)
			assert.Equal(t, err == nil, string(opened) == plain)
		}
	}
}

func FuzzOpen(f *testing.F) {
	s := newRing(false, "a")
	f.Add(s.seal(ofResult, "j", []byte("secret")))
	f.Add([]byte{firstByte})
	f.Add([]byte{firstByte, 0})
	f.Fuzz(func(t *testing.T, stored []byte) {
		if plain, err := s.open(ofResult, "k", stored); len(stored) > 0 && (err == nil || plain != nil) {
			t.Fatalf("%x was opened", stored)
		}
		s.openRemark("k", string(stored))
		for _, r := range []*Ring{s, newRing(false)} {
			grant := store.Grant{State: store.Done, Result: stored}
			if r.openGrant("k", &grant); isSealed(stored) && (grant.Unopened == nil || grant.Result != nil) {
				t.Fatalf("%x was opened", stored)
			}
		}
	})
}

// TestSealRemark: one that is sealed is a remark that a store takes, whatever its length and the key's.
func TestSealRemark(t *testing.T) {
	for _, name := range []string{"a", strings.Repeat("n", 64)} {
		s := newRing(false, name)
		for _, remark := range []string{"", "order 17", strings.Repeat("é", 127)} {
			stored := s.sealRemark("k", remark)
			assert.Equal(t, stored, store.Note(stored))
			got := s.openRemark("k", stored)
			assert.Equal(t, remark[:len(got)], got)
			assert.True(t, utf8.ValidString(got))
			assert.GreaterOrEqual(t, len(got), min(len(remark), 155-len(name)))
			assert.True(t, strings.HasPrefix(stored, remarkPrefix))
		}
	}
	s := newRing(false, "a")
	stored := s.sealRemark("k", "order 17")
	assert.Equal(t, unreadable, s.openRemark("j", stored))
	assert.Equal(t, unreadable, newRing(true, "b").openRemark("k", stored))
	assert.Equal(t, unreadable, s.openRemark("k", "order 17"))
	assert.Equal(t, "order 17", newRing(true, "a").openRemark("k", "order 17"))
	for _, text := range []string{"%", base64.RawURLEncoding.EncodeToString([]byte("order 17"))} {
		assert.Equal(t, unreadable, newRing(true, "a").openRemark("k", remarkPrefix+text))
	}
}
