package core

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/view"
	"github.com/idem-go/idem/core/store"
)

func sealKey(name string) Secret {
	return Secret{Name: name, Key: []byte("0123456789abcdef0123456789abcdef" + name)}
}

func newSealer(t testing.TB, allow bool, names ...string) *sealer {
	t.Helper()
	c := Config{Seal: &Seal{DigestKey: sealKey("digest").Key, AllowUnsealed: allow}}
	for _, name := range names {
		c.Seal.Keys = append(c.Seal.Keys, sealKey(name))
	}
	var f faults
	s := c.sealer(&f)
	require.NoError(t, f.err())
	return s
}

// TestSealFormat: it is the one of docs/sealing.md, which another program can open.
func TestSealFormat(t *testing.T) {
	const key = "idem:shop:U=aliceM=POST%20/ordersK=k-1"
	stored := newSealer(t, false, "b", "a").seal(sealsResult, key, []byte("\x02plain"))
	require.Equal(t, "\x06\x01b", string(stored[:3]))

	derived, err := hkdf.Expand(sha256.New, sealKey("b").Key, "idem seal 1\x00result\x00"+key, 32)
	require.NoError(t, err)
	block, err := aes.NewCipher(derived)
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	plain, err := gcm.Open(nil, stored[3:15], stored[15:], stored[:3])
	require.NoError(t, err)
	assert.Equal(t, "\x02plain", string(plain))
	assert.Len(t, stored, sealOverhead+1+len(plain))
}

// TestSealOfLongKeys: a SQL store tells an operator of a long key only how it begins, and a digest.
func TestSealOfLongKeys(t *testing.T) {
	s, key := newSealer(t, false, "a"), strings.Repeat("k", 3000)
	told := key[:boundKey] + strings.Repeat("\xd1", 32)
	assert.Equal(t, "order 17", s.openRemark(told, s.sealRemark(key, "order 17")))
	assert.Equal(t, unreadableRemark, s.openRemark("j"+told[1:], s.sealRemark(key, "order 17")))
}

// TestSealOpensNothingElse: each byte that is changed, each that is missing, another key, kind or place.
func TestSealOpensNothingElse(t *testing.T) {
	s := newSealer(t, false, "b", "a")
	stored := s.seal(sealsResult, "k", []byte("secret"))
	plain, err := newSealer(t, false, "c", "b").open(sealsResult, "k", stored)
	require.NoError(t, err)
	assert.Equal(t, "secret", string(plain))
	assert.False(t, bytes.Equal(stored, s.seal(sealsResult, "k", []byte("secret"))), "the nonce is random")
	assert.Nil(t, s.seal(sealsResult, "k", nil), "of nothing there is nothing to seal")

	refused := func(by *sealer, kind, key string, stored []byte) {
		t.Helper()
		plain, err := by.open(kind, key, stored)
		assert.ErrorIs(t, err, ErrSealed)
		assert.Nil(t, plain)
		assert.NotContains(t, err.Error(), "secret")
		if kind != sealsResult {
			return
		}
		result := by.result(key, stored)
		assert.ErrorIs(t, unopened(result), ErrSealed)
		assert.False(t, decodeResponse(new(Response), result))
	}
	for i := range stored {
		for bit := range 8 {
			changed := bytes.Clone(stored)
			changed[i] ^= 1 << bit
			refused(s, sealsResult, "k", changed)
		}
		if i > 0 {
			refused(s, sealsResult, "k", stored[:i])
		}
	}
	refused(s, sealsResult, "k", append(bytes.Clone(stored), 0))
	refused(s, sealsResult, "j", stored)
	refused(s, sealsSteps, "k", stored)
	refused(s, sealsResult, "k", s.seal(sealsSteps, "k", []byte("secret")))
	refused(newSealer(t, true, "a"), sealsResult, "k", stored)
	refused(nil, sealsResult, "k", stored)
	other := newSealer(t, false, "a", "b")
	other.ring[1] = newSealer(t, false, "a").ring[0]
	other.ring[1].name = "b"
	refused(other, sealsResult, "k", stored)

	for _, before := range [][]byte{{resultUnavailable}, []byte("\x02secret")} {
		refused(s, sealsResult, "k", before)
		plain, err := newSealer(t, true, "a").open(sealsResult, "k", before)
		require.NoError(t, err)
		assert.Equal(t, before, plain)
	}
}

func FuzzOpen(f *testing.F) {
	s := newSealer(f, false, "a")
	f.Add(s.seal(sealsResult, "j", []byte("secret")))
	f.Add([]byte{resultSealed})
	f.Add([]byte{resultSealed, 0})
	f.Fuzz(func(t *testing.T, stored []byte) {
		if plain, err := s.open(sealsResult, "k", stored); len(stored) > 0 && (err == nil || plain != nil) {
			t.Fatalf("%x was opened", stored)
		}
		s.openRemark("k", string(stored))
		_ = unopened(stored)
	})
}

// TestSealRemark: one that is sealed is a remark that a store takes, whatever its length and the key's.
func TestSealRemark(t *testing.T) {
	for _, name := range []string{"a", strings.Repeat("n", 64)} {
		s := newSealer(t, false, name)
		for _, remark := range []string{"", "order 17", strings.Repeat("é", 127)} {
			stored := s.sealRemark("k", remark)
			assert.Equal(t, stored, store.Note(stored))
			got := s.openRemark("k", stored)
			assert.Equal(t, remark[:len(got)], got)
			assert.True(t, utf8.ValidString(got))
			assert.GreaterOrEqual(t, len(got), min(len(remark), 155-len(name)))
			assert.True(t, strings.HasPrefix(stored, view.SealedRemark))
		}
	}
	s := newSealer(t, false, "a")
	stored := s.sealRemark("k", "order 17")
	assert.Equal(t, unreadableRemark, s.openRemark("j", stored))
	assert.Equal(t, unreadableRemark, newSealer(t, true, "b").openRemark("k", stored))
	assert.Equal(t, unreadableRemark, s.openRemark("k", "order 17"))
	assert.Equal(t, "order 17", newSealer(t, true, "a").openRemark("k", "order 17"))
	for _, text := range []string{"%", base64.RawURLEncoding.EncodeToString([]byte("order 17"))} {
		assert.Equal(t, unreadableRemark, newSealer(t, true, "a").openRemark("k", view.SealedRemark+text))
	}
}
