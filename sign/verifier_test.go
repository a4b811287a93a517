package sign_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// refusedBy returns the answer of a verifier to an error.
func refusedBy(v *sign.Verifier, err error) (status int, header map[string]string, body string) {
	r := v.Answer(context.Background(), err)
	header = make(map[string]string)
	for name := range r.Header {
		header[name] = r.Header.Get(name)
	}
	return r.Status, header, string(r.Body)
}

func TestConfigFaultsAreReportedAtOnce(t *testing.T) {
	_, err := sign.NewVerifier(sign.Config{
		StoreTimeout: time.Hour, Keys: (*sign.Ring)(nil), Scheme: (*counted)(nil), Nonces: (*sign.MemoryNonces)(nil), Window: 90*time.Second + 1, Margin: math.MaxInt64, BodyLimit: -1, MaxHeaderLines: -1, MaxHeaderBytes: -1, Host: "https://shop.test", Hosts: []string{"shop.test", ""}, NonceQuota: -1, MaxNonces: -1,
	})
	var faults []string
	for _, fault := range err.(interface{ Unwrap() []error }).Unwrap() {
		var config *sign.ConfigError
		require.ErrorAs(t, fault, &config)
		faults = append(faults, config.Field)
	}
	require.Equal(t, []string{
		"Config.Keys", "Config.Scheme", "Config.Nonces", "Config.Window", "Config.Margin", "Config.BodyLimit", "Config.MaxHeaderLines", "Config.MaxHeaderBytes",
		"Config.StoreTimeout", "Config.NonceQuota", "Config.MaxNonces", "Config.Host", "Config.Hosts",
	}, faults)
	_, err = sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing()), Window: 61 * time.Minute})
	require.ErrorContains(t, err, "up to 1h0m0s")
	_, err = sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing()), NonceQuota: 3, MaxNonces: 2})
	require.ErrorContains(t, err, "Config.NonceQuota")
	_, err = sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing()), Nonces: &sign.MemoryNonces{Max: 64}, NonceQuota: 65, MaxNonces: 66})
	require.ErrorContains(t, err, "Config.NonceQuota: is 65, and Nonces has room for 64")
	require.ErrorContains(t, err, "Config.MaxNonces: is 66, and Nonces has room for 64")
	_, err = sign.NewVerifier(sign.Config{Keys: keyFunc(nil)})
	require.ErrorContains(t, err, "Config.Keys")
	require.Panics(t, func() { sign.Must(sign.NewVerifier(sign.Config{})) })
}

// countingNonces counts what reaches the store.
type countingNonces struct {
	sign.NonceStore
	calls atomic.Int32
}

func (c *countingNonces) Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (bool, error) {
	c.calls.Add(1)
	return c.NonceStore.Use(ctx, keyID, nonce, ttl)
}

// Each message has every fault from its row on, and gets the answer of the first: what is found
// earlier spares what comes later.
func TestTheOrderOfTheChecks(t *testing.T) {
	key := newHMAC(t, "demo")
	stranger := newHMAC(t, "stranger")
	large := func(m *sign.Message) { m.Source.(*fixture.Source).Body = make([]byte, 1<<20+1) }
	tampered := func(m *sign.Message) { m.Method = "PUT" }
	for _, c := range []struct {
		name   string
		key    *sign.Key
		at     time.Duration // when it was signed, from now
		change []func(*sign.Message)
		want   error
		reads  int // of the body
		nonces int32
	}{
		{"header too long", stranger, -time.Hour, []func(*sign.Message){
			func(m *sign.Message) { m.Source.(*fixture.Source).Header["X-Padding"] = make([]string, 101) },
			func(m *sign.Message) { m.Source.(*fixture.Source).Header.Del("X-Nonce") }, large, tampered,
		}, sign.CodeMalformed, 0, 0},
		{"form", stranger, -time.Hour, []func(*sign.Message){
			func(m *sign.Message) { m.Source.(*fixture.Source).Header.Del("X-Nonce") }, large, tampered,
		}, sign.CodeMissing, 0, 0},
		{"timestamp", stranger, -time.Hour, []func(*sign.Message){large, tampered}, sign.CodeExpired, 0, 0},
		{"body, whether the key is known", stranger, 0, []func(*sign.Message){large, tampered}, sign.CodeBodyTooLarge, 1, 0},
		{"body, or not", key, 0, []func(*sign.Message){large, tampered}, sign.CodeBodyTooLarge, 1, 0},
		{"key", stranger, 0, []func(*sign.Message){tampered}, sign.ReasonUnknownKey, 1, 0},
		{"signature", key, 0, []func(*sign.Message){tampered}, sign.ReasonBadSignature, 1, 0},
		{"nonce", key, 0, nil, nil, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			nonces := &countingNonces{NonceStore: new(sign.MemoryNonces)}
			v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Nonces: nonces, Clock: fixedClock}))
			m := fixture.Message(signedRequest(t, c.key, sign.RequestOptions{Clock: func() time.Time { return now.Add(c.at) }}))
			for _, change := range c.change {
				change(m)
			}
			verified, err := v.Verify(t.Context(), m)
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, sign.Verified{KeyID: "demo", Owner: "demo", Scheme: "v1", Algorithm: sign.HMACSHA256, Time: now, Nonce: verified.Nonce}, verified)
				require.Equal(t, m.Source.(*fixture.Source).Header.Get("X-Nonce"), verified.Nonce)
			} else {
				require.ErrorIs(t, err, c.want)
				require.Zero(t, verified)
			}
			require.Equal(t, c.reads, m.Source.(*fixture.Source).Reads)
			require.Equal(t, c.nonces, nonces.calls.Load())
		})
	}
}

// The window is the same on both sides, and whole seconds are compared: the fraction of the
// verifier's second does not count.
func TestWindow(t *testing.T) {
	key := newHMAC(t, "demo")
	for _, fraction := range []time.Duration{0, 999 * time.Millisecond} {
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Window: 5 * time.Second, Clock: func() time.Time { return now.Add(fraction) }}))
		for _, c := range []struct {
			at   time.Duration
			want error
		}{{-6 * time.Second, sign.CodeExpired}, {-5 * time.Second, nil}, {0, nil}, {5 * time.Second, nil}, {6 * time.Second, sign.CodeNotYetValid}} {
			m := fixture.Message(signedRequest(t, key, sign.RequestOptions{Clock: func() time.Time { return now.Add(c.at) }}))
			_, err := v.Verify(t.Context(), m)
			require.ErrorIs(t, err, c.want, "%v", c.at)
		}
	}
}

// A message from the far end of the window can be sent again for twice the window. It is refused in each
// second of it, first as replayed and then as expired, and its nonce is forgotten afterwards.
func TestANonceIsKeptUntilItsTimestampHasLeftTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := newHMAC(t, "demo")
		nonces := &sign.MemoryNonces{Max: 2}
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Nonces: nonces, NonceQuota: 2, Margin: time.Second}))
		r := signedRequest(t, key, sign.RequestOptions{Clock: func() time.Time { return time.Now().Add(time.Minute) }})
		_, err := v.Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
		began := time.Now()
		for time.Since(began) < 2*time.Minute+time.Second {
			_, err := v.Verify(t.Context(), fixture.Message(r))
			require.ErrorIs(t, err, sign.CodeReplayed, "%v", time.Since(began))
			time.Sleep(500 * time.Millisecond)
		}
		_, err = v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(t, err, sign.CodeExpired)
		use := func() error {
			_, err := nonces.Use(t.Context(), "other", newNonce(), time.Hour)
			return err
		}
		require.NoError(t, use())
		require.ErrorIs(t, use(), sign.ErrNoncesFull, "it is remembered yet")
		time.Sleep(6 * time.Second) // Margin, and the time that keys and nonces may take
		require.NoError(t, use())
	})
}

// keptFor is for how long the last nonce is to be kept.
type keptFor time.Duration

func (k *keptFor) Use(_ context.Context, _, _ string, ttl time.Duration) (bool, error) {
	*k = keptFor(ttl)
	return true, nil
}

func (*keptFor) Limits() (int, bool) { return 0, false }

// A nonce is kept for as long as its message is in time, its last second included, and then for Margin and for
// two calls of a store: each of them counts, and nothing else does.
func TestHowLongANonceIsKept(t *testing.T) {
	for _, c := range []struct {
		name   string
		config sign.Config
		signed time.Duration // from now
		clock  time.Duration // the same
		takes  time.Duration // for its body
		want   time.Duration
	}{
		{name: "with nothing set", want: (60 + 1 + 30 + 2*2) * time.Second},
		{name: "signed ahead", signed: time.Minute, want: (60 + 60 + 1 + 30 + 2*2) * time.Second},
		{name: "signed a window ago", signed: -time.Minute, want: (1 + 30 + 2*2) * time.Second},
		{name: "a window of its own", config: sign.Config{Window: 5 * time.Second}, want: (5 + 1 + 30 + 2*2) * time.Second},
		{name: "a margin of its own", config: sign.Config{Margin: time.Millisecond}, want: (60+1+2*2)*time.Second + time.Millisecond},
		{name: "a limit for stores of its own", config: sign.Config{StoreTimeout: 7 * time.Second}, want: (60 + 1 + 30 + 2*7) * time.Second},
		{name: "within a second", clock: 250 * time.Millisecond, want: (60+1+30+2*2)*time.Second - 250*time.Millisecond},
		{name: "behind a slow body", takes: 20 * time.Second, want: (60 + 1 + 30 + 2*2 - 20) * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			key, clock, kept := newHMAC(t, "demo"), now.Add(c.clock), new(keptFor)
			c.config.Keys, c.config.Nonces, c.config.Clock = sign.Must(sign.NewRing(key)), kept, func() time.Time { return clock }
			m := fixture.Message(signedRequest(t, key, sign.RequestOptions{Clock: func() time.Time { return now.Add(c.signed) }}))
			m.Source.(*fixture.Source).Meanwhile = func() { clock = clock.Add(c.takes) }
			_, err := sign.Must(sign.NewVerifier(c.config)).Verify(t.Context(), m)
			require.NoError(t, err)
			require.Equal(t, c.want, time.Duration(*kept))
		})
	}
}

// Who has recorded a message can begin to send it in time, hold back its last byte until its nonce is
// forgotten, and then let it in. What was true before the body is looked at again after it.
func TestABodyThatTakesItsTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes time.Duration
		do    func(ring *sign.Ring)
		want  error
	}{
		{"within the window", time.Minute, nil, nil},
		{"beyond it", time.Minute + time.Second, nil, sign.CodeExpired},
		{"until the key has expired", 50 * time.Second, nil, sign.ReasonKeyExpired},
		{"until the key is revoked", time.Second, func(r *sign.Ring) { r.Revoke("demo") }, sign.ReasonRevokedKey},
		{"until the key is revoked, within the second", 0, func(r *sign.Ring) { r.Revoke("demo") }, sign.ReasonRevokedKey},
		{"until the key has gone", time.Second, func(r *sign.Ring) {
			keys, _ := r.Keys(context.Background(), "demo")
			r.Remove(keys[0])
			_ = r.Add(newHMAC(t, "demo"))
		}, sign.ReasonBadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, until := now, time.Time{}
			if c.want == sign.ReasonKeyExpired {
				until = now.Add(50 * time.Second)
			}
			key := newHMACWith(t, sign.KeyOptions{ID: "demo", ValidUntil: until})
			ring := sign.Must(sign.NewRing(key))
			v := sign.Must(sign.NewVerifier(sign.Config{Keys: ring, Clock: func() time.Time { return clock }}))
			m := fixture.Message(signedRequest(t, key, sign.RequestOptions{Clock: fixedClock}))
			m.Source.(*fixture.Source).Meanwhile = func() {
				clock = clock.Add(c.takes)
				if c.do != nil {
					c.do(ring)
				}
			}
			_, err := v.Verify(t.Context(), m)
			require.ErrorIs(t, err, c.want)
		})
	}
}

// A source that makes its keys anew each time is asked again when a second has passed, and has another
// *Key of the same secret then.
func TestKeysThatAreMadeAnew(t *testing.T) {
	clock := now
	v := sign.Must(sign.NewVerifier(sign.Config{Clock: func() time.Time { return clock }, Keys: keyFunc(func(_ context.Context, id string) ([]*sign.Key, error) {
		key, err := sign.NewHMACKey(sign.KeyOptions{ID: id}, []byte(designSecret))
		return []*sign.Key{key}, err
	})}))
	m := fixture.Message(signedRequest(t, sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, []byte(designSecret))), sign.RequestOptions{Clock: fixedClock}))
	m.Source.(*fixture.Source).Meanwhile = func() { clock = clock.Add(time.Second) }
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
}

func TestOfManyAtOnceOneIsFirst(t *testing.T) {
	key := newHMAC(t, "demo")
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))}))
	r := signedRequest(t, key, sign.RequestOptions{})
	var accepted, replayed atomic.Int32
	var all sync.WaitGroup
	messages := make([]*sign.Message, 100)
	for i := range messages {
		messages[i] = fixture.Message(r)
	}
	for _, m := range messages {
		all.Go(func() {
			switch _, err := v.Verify(context.Background(), m); {
			case err == nil:
				accepted.Add(1)
			case errors.Is(err, sign.CodeReplayed):
				replayed.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, accepted.Load())
	require.EqualValues(t, 99, replayed.Load())
}

// Whatever is wrong with a key, outside it looks like a bad signature.
func TestNothingOutsideTellsKeys(t *testing.T) {
	known := newHMAC(t, "known")
	revoked, early, late := newHMAC(t, "revoked"), newHMACWith(t, sign.KeyOptions{ID: "early", ValidFrom: now.Add(time.Second)}), newHMACWith(t, sign.KeyOptions{ID: "late", ValidUntil: now})
	ring := sign.Must(sign.NewRing(known, revoked, early, late))
	ring.Revoke("revoked")
	var reasons []string
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: ring, Clock: fixedClock, Observe: func(_ context.Context, e sign.Event) {
		reasons = append(reasons, string(e.Err.Reason)+" "+e.KeyID)
	}}))
	var answers []*sign.Answer
	for _, key := range []*sign.Key{newHMAC(t, "unknown"), revoked, early, late, newHMAC(t, "known")} {
		_, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, key, sign.RequestOptions{Clock: fixedClock})))
		require.ErrorIs(t, err, sign.CodeInvalid)
		answers = append(answers, v.Answer(context.Background(), err))
	}
	require.Equal(t, []string{"unknown_key unknown", "revoked_key revoked", "key_not_yet_valid early", "key_expired late", "bad_signature known"}, reasons)
	for _, a := range answers {
		require.Equal(t, answers[0], a)
	}
}

// What a message of an unknown key is checked with instead may even be the key that has signed it. That
// does not count.
func TestADecoyProvesNothing(t *testing.T) {
	signer, verifier := newEd25519(t)
	for _, key := range [][2]*sign.Key{{newHMAC(t, "demo"), nil}, {signer, verifier}} {
		if key[1] == nil {
			key[1] = key[0]
		}
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key[1]))}))
		_, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, key[0], sign.RequestOptions{})))
		require.NoError(t, err)

		m := fixture.Message(signedRequest(t, key[0], sign.RequestOptions{}))
		s := &sign.Signature{KeyID: "somebody-else", Created: time.Now().Unix(), Nonce: newNonce(), Covered: []string{"Content-Type"}}
		added, err := standardV1(t).Sign(m, s, key[0])
		require.NoError(t, err)
		maps.Copy(m.Source.(*fixture.Source).Header, added.Header)
		_, err = v.Verify(t.Context(), m)
		require.ErrorIs(t, err, sign.ReasonUnknownKey)
	}
}

func TestSeveralKeysOfOneID(t *testing.T) {
	older, newer := newHMACWith(t, sign.KeyOptions{ID: "shop", ValidUntil: now.Add(time.Hour)}), newHMACWith(t, sign.KeyOptions{ID: "shop", ValidFrom: now.Add(-time.Hour)})
	clock := now
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(older, newer)), Clock: func() time.Time { return clock }}))
	verify := func(key *sign.Key) error {
		_, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, key, sign.RequestOptions{Clock: func() time.Time { return clock }})))
		return err
	}
	require.NoError(t, verify(older))
	require.NoError(t, verify(newer))
	require.ErrorIs(t, verify(newHMAC(t, "shop")), sign.ReasonBadSignature)
	clock = now.Add(time.Hour)
	require.ErrorIs(t, verify(older), sign.ReasonBadSignature, "its time is over; the other one does not fit")
	require.NoError(t, verify(newer))
	clock = now.Add(-2 * time.Hour)
	require.ErrorIs(t, verify(newer), sign.ReasonBadSignature)
	require.NoError(t, verify(older))
}

func TestKeyFunc(t *testing.T) {
	key := newHMAC(t, "demo")
	broken := errors.New("the database is down")
	for _, c := range []struct {
		name string
		keys []*sign.Key
		err  error
		want error
	}{
		{"known", []*sign.Key{key}, nil, nil},
		{"nothing found", nil, nil, sign.ReasonUnknownKey},
		{"unknown", nil, sign.ReasonUnknownKey, sign.ReasonUnknownKey},
		{"revoked, wrapped", nil, errors.Join(sign.ReasonRevokedKey), sign.ReasonRevokedKey},
		{"broken", nil, broken, sign.CodeStoreUnavailable},
		{"revoked, but handed out", []*sign.Key{key}, sign.ReasonRevokedKey, sign.ReasonRevokedKey},
		{"a nil key", []*sign.Key{nil}, nil, sign.ReasonUnknownKey},
		{"a nil key beside a good one", []*sign.Key{nil, key}, nil, nil},
		{"the last of eight", append(slices.Repeat([]*sign.Key{newHMAC(t, "demo")}, 7), key), nil, nil},
		{"the ninth", append(slices.Repeat([]*sign.Key{newHMAC(t, "demo")}, 8), key), nil, sign.ReasonBadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := sign.Must(sign.NewVerifier(sign.Config{Clock: fixedClock, Keys: keyFunc(func(ctx context.Context, id string) ([]*sign.Key, error) {
				if _, ok := ctx.Deadline(); !ok || id != "demo" {
					t.Errorf("asked for %q, deadline: %t", id, ok)
				}
				return c.keys, c.err
			})}))
			_, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, key, sign.RequestOptions{Clock: fixedClock})))
			require.ErrorIs(t, err, c.want)
			if c.err == broken {
				require.ErrorIs(t, err, broken)
			}
		})
	}
}

// failingNonces fails, or never answers.
type failingNonces struct{ err error }

func (f failingNonces) Use(ctx context.Context, _, _ string, _ time.Duration) (bool, error) {
	if f.err == nil {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return true, f.err // true does not count
}

func (failingNonces) Limits() (int, bool) { return 0, false }

func TestAStoreThatFailsRefuses(t *testing.T) {
	key := newHMAC(t, "demo")
	readOnly := errors.New("READONLY You can't write against a read only replica.")
	for name, nonces := range map[string]sign.NonceStore{
		"down or read-only": failingNonces{readOnly},
		"silent":            failingNonces{},
		"full":              fullNonces(t),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Nonces: nonces, StoreTimeout: time.Second}))
				began := time.Now()
				_, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, key, sign.RequestOptions{})))
				require.ErrorIs(t, err, sign.CodeStoreUnavailable)
				require.LessOrEqual(t, time.Since(began), time.Second)
				status, header, body := refusedBy(v, err)
				require.Equal(t, 503, status)
				require.Equal(t, "1", header["Retry-After"])
				require.NotContains(t, body, "READONLY")
				require.NotContains(t, header, "Www-Authenticate")
			})
		})
	}
}

func fullNonces(t *testing.T) sign.NonceStore {
	n := &sign.MemoryNonces{Max: 1}
	for {
		if _, err := n.Use(t.Context(), "filler", newNonce(), time.Hour); err != nil {
			require.ErrorIs(t, err, sign.ErrNoncesFull)
			return n
		}
	}
}

func TestRefusals(t *testing.T) {
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing()), Clock: fixedClock}))
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{sign.CodeMissing, 401, "missing"}, {sign.CodeInvalid, 401, "invalid"}, {sign.CodeExpired, 401, "expired"},
		{sign.CodeNotYetValid, 401, "not_yet_valid"}, {sign.CodeReplayed, 401, "replayed"}, {sign.CodeMalformed, 400, "malformed"},
		{sign.CodeDuplicateHeader, 400, "duplicate_header"}, {sign.CodeBodyTooLarge, 413, "body_too_large"},
		{sign.CodeRateLimited, 429, "rate_limited"},
		{sign.CodeStoreUnavailable, 503, "store_unavailable"}, {sign.ReasonUncovered, 401, "invalid"}, {sign.ReasonDigestMismatch, 401, "invalid"},
		{sign.Code("made up"), 401, "invalid"}, {sign.Reason("made up"), 401, "invalid"},
	} {
		err := sign.Errorf(c.err, "inner matters")
		status, header, body := refusedBy(v, err)
		require.Equal(t, c.status, status)
		require.Equal(t, c.status, err.Status())
		require.NotContains(t, body, "inner matters")
		var problem map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &problem))
		require.Equal(t, c.code, problem["code"])
		require.EqualValues(t, c.status, problem["status"])
		require.Equal(t, "https://github.com/idem-go/idem/blob/main/docs/problems.md#"+c.code, problem["type"])
		require.NotEmpty(t, problem["title"])
		require.NotEmpty(t, problem["detail"])
		want := map[string]string{"Cache-Control": "no-store", "Content-Type": "application/problem+json", "Idempotency-Refused": c.code}
		if c.status == 401 {
			want["Www-Authenticate"] = `Signature scheme="v1"`
		}
		if c.code == "expired" || c.code == "not_yet_valid" {
			want["Date"] = "Tue, 14 Nov 2023 22:13:20 GMT"
		}
		if c.status == 503 || c.status == 429 {
			want["Retry-After"] = "1"
		}
		require.Equal(t, want, header)
	}
	// An error that is none of ours refuses, and says nothing.
	status, _, body := refusedBy(v, errors.New("inner matters"))
	require.Equal(t, 401, status)
	require.NotContains(t, body, "inner matters")
}

func TestRefuse(t *testing.T) {
	type who struct{}
	var answer *sign.Answer
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing()), Clock: fixedClock, Refuse: func(ctx context.Context, e *sign.Error) *sign.Answer {
		require.Equal(t, "the request", ctx.Value(who{}))
		require.Equal(t, "details", e.Detail)
		e.Code = "changed" // its own
		return answer
	}}))
	ctx := context.WithValue(t.Context(), who{}, "the request")
	refusal := func(kind error) *sign.Answer { return v.Answer(ctx, sign.Errorf(kind, "details")) }
	// answered is what an answer to code has, with more.
	answered := func(status int, body string, code string, more ...string) *sign.Answer {
		a := &sign.Answer{Status: status, Header: http.Header{"Cache-Control": {"no-store"}, "Idempotency-Refused": {code}}}
		if body != "" {
			a.Body = []byte(body)
		}
		for i := 0; i < len(more); i += 2 {
			a.Header.Add(more[i], more[i+1])
		}
		return a
	}
	const challenge, scheme = "Www-Authenticate", `Signature scheme="v1"`

	// Nothing: all as by default.
	require.Equal(t, sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing())})).Answer(ctx, sign.CodeReplayed), refusal(sign.CodeReplayed))

	// A body: nothing is added to it but what every refusal has.
	answer = &sign.Answer{Body: []byte("no")}
	require.Equal(t, answered(401, "no", "replayed", challenge, scheme), refusal(sign.CodeReplayed))
	require.Equal(t, answered(413, "no", "body_too_large"), refusal(sign.CodeBodyTooLarge))
	require.Equal(t, &sign.Answer{Body: []byte("no")}, answer, "it is the function's own")

	// An empty answer is one, too.
	answer = new(sign.Answer)
	require.Equal(t, answered(413, "", "body_too_large"), refusal(sign.CodeBodyTooLarge))

	// A status of its own; and who makes a 401 needs a challenge.
	answer = &sign.Answer{Status: 200}
	require.Equal(t, answered(200, "", "malformed"), refusal(sign.CodeMalformed))
	require.Equal(t, answered(200, "", "replayed", challenge, scheme), refusal(sign.CodeReplayed))
	answer = &sign.Answer{Status: 401}
	require.Equal(t, answered(401, "", "malformed", challenge, scheme), refusal(sign.CodeMalformed))

	// Its fields stay; that it is a refusal, and not for caches, is not its to decide.
	answer = &sign.Answer{Header: http.Header{"x-own": {"1", "2"}, "cache-control": {"public"}, "idempotency-refused": {""}}}
	require.Equal(t, answered(400, "", "malformed", "X-Own", "1", "X-Own", "2"), refusal(sign.CodeMalformed))
	require.Equal(t, http.Header{"x-own": {"1", "2"}, "cache-control": {"public"}, "idempotency-refused": {""}}, answer.Header, "it is not written to")

	// What belongs to a code is there, once.
	answer = new(sign.Answer)
	const date = "Tue, 14 Nov 2023 22:13:20 GMT"
	require.Equal(t, answered(401, "", "expired", "Date", date, challenge, scheme), refusal(sign.CodeExpired))
	require.Equal(t, answered(401, "", "not_yet_valid", "Date", date, challenge, scheme), refusal(sign.CodeNotYetValid))
	require.Equal(t, answered(503, "", "store_unavailable", "Retry-After", "1"), refusal(sign.CodeStoreUnavailable))
	own := []string{"Date", "now", "Retry-After", "7", "Www-Authenticate", "Own"}
	answer.Header = http.Header{"Date": {"now"}, "Retry-After": {"7"}, "www-authenticate": {"Own"}}
	require.Equal(t, answered(401, "", "expired", own...), refusal(sign.CodeExpired))
	require.Equal(t, answered(503, "", "store_unavailable", own...), refusal(sign.CodeStoreUnavailable))
}

func TestErrorsAreToldByTheirKinds(t *testing.T) {
	cause := errors.New("the cause")
	err := error(sign.Errorf(sign.ReasonRevokedKey, "details: %w", cause))
	for target, want := range map[error]bool{
		sign.CodeInvalid: true, sign.ReasonRevokedKey: true, cause: true, &sign.Error{Code: sign.CodeInvalid}: true, sign.Errorf(sign.ReasonRevokedKey, ""): true,
		sign.CodeMalformed: false, sign.ReasonUnknownKey: false, &sign.Error{Code: sign.CodeMalformed}: false, sign.Errorf(sign.ReasonUnknownKey, ""): false,
		sign.Code("revoked_key"): false, sign.Reason("invalid"): false, sign.Reason(""): false, (*sign.Error)(nil): false,
	} {
		require.Equal(t, want, errors.Is(err, target), target)
	}
	require.Equal(t, "sign: invalid (revoked_key): details: the cause", err.Error())
	require.NotErrorIs(t, sign.Errorf(sign.CodeInvalid, ""), sign.Reason(""))

	// So are those that have no details.
	require.ErrorIs(t, sign.ReasonRevokedKey, sign.CodeInvalid)
	require.NotErrorIs(t, sign.ReasonRevokedKey, sign.CodeMalformed)
	require.Equal(t, "revoked_key replayed", fmt.Sprint(sign.ReasonRevokedKey, " ", sign.CodeReplayed))
}

// What a key source says may be a kind as it is, within another error, or one with details.
func TestKeySourcesSayWhy(t *testing.T) {
	r, err := http.NewRequest("POST", "http://api.example.com/", nil)
	require.NoError(t, err)
	require.NoError(t, sign.Request(r, newHMAC(t, "demo"), sign.RequestOptions{}))
	for said, text := range map[error]string{
		sign.ReasonRevokedKey: "sign: invalid (revoked_key)",
		fmt.Errorf("the database: %w", sign.ReasonRevokedKey): "sign: invalid (revoked_key): the database: revoked_key",
		sign.Errorf(sign.ReasonRevokedKey, "in May"):          "sign: invalid (revoked_key): in May",
	} {
		var observed *sign.Error
		v := sign.Must(sign.NewVerifier(sign.Config{
			Keys:    keyFunc(func(context.Context, string) ([]*sign.Key, error) { return nil, said }),
			Observe: func(_ context.Context, e sign.Event) { observed = e.Err },
		}))
		_, err = v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(t, err, sign.ReasonRevokedKey)
		require.ErrorIs(t, err, sign.CodeInvalid)
		require.ErrorIs(t, err, said)
		require.EqualError(t, err, text)

		// An observer may change its error: the next one gets an error of its own.
		observed.Code, observed.Reason = "changed", "changed"
		_, err = v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(t, err, sign.ReasonRevokedKey)
	}
}

// A scheme may say which parameters it has consumed by strings of the message's, which do not last.
func TestConsumed(t *testing.T) {
	memory := []byte("timestamp")
	v1, err := sign.NewV1(sign.V1Options{})
	require.NoError(t, err)
	key := newHMAC(t, "demo")
	verify := func(scheme sign.Scheme) sign.Verified {
		r, err := http.NewRequest("POST", "http://api.example.com/", nil)
		require.NoError(t, err)
		require.NoError(t, sign.Request(r, key, sign.RequestOptions{}))
		verified, err := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: scheme})).Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
		return verified
	}
	first := verify(consuming{v1, unsafe.String(&memory[0], len(memory))})
	copy(memory, "xxxxxxxxx")
	require.Equal(t, []string{"timestamp"}, first.Consumed)

	// The next message has nothing of it.
	require.Nil(t, verify(v1).Consumed)
	require.Equal(t, []string{"other"}, verify(consuming{v1, "other"}).Consumed)
	require.Equal(t, []string{"timestamp"}, first.Consumed)
}

// consuming is a scheme that takes one parameter as a part of the signature.
type consuming struct {
	sign.Scheme
	name string
}

func (c consuming) Parse(m *sign.Message, s *sign.Signature) error {
	s.Consumed = append(s.Consumed, c.name)
	return c.Scheme.Parse(m, s)
}

// A scheme's error of another kind refuses, and stays what lies behind.
func TestASchemesOwnError(t *testing.T) {
	v1, err := sign.NewV1(sign.V1Options{})
	require.NoError(t, err)
	for _, own := range []error{errors.New("odd"), fmt.Errorf("odd: %w", sign.CodeMissing)} {
		var event sign.Event
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(newHMAC(t, "demo"))), Scheme: failing{v1, own},
			Observe: func(_ context.Context, e sign.Event) { event = e }}))
		r, err := http.NewRequest("POST", "http://api.example.com/", nil)
		require.NoError(t, err)
		_, err = v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(t, err, own)
		require.ErrorIs(t, event.Err, own)
		require.Equal(t, own.Error(), event.Err.Detail)
	}
}

type failing struct {
	sign.Scheme
	err error
}

func (f failing) Parse(*sign.Message, *sign.Signature) error { return f.err }

// Both sides show the same string, and nothing secret is in it.
func TestObserve(t *testing.T) {
	secret := []byte("a secret that nobody may ever see")
	key := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, secret))
	var ours, theirs string
	var event sign.Event
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Observe: func(_ context.Context, e sign.Event) {
		event, ours = e, e.SigningString()
	}}))
	r, err := http.NewRequest("POST", "http://api.example.com/a?b=c&access_token=t-0815&d", strings.NewReader("a body that is nobody's business"))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer of a token")
	r.Header.Set("Content-Type", "text/plain")
	require.NoError(t, sign.Request(r, key, sign.RequestOptions{
		Cover: []string{"Authorization", "Content-Type"}, Observe: func(_ *http.Request, s string) { theirs = s },
	}))
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
	require.Nil(t, event.Err)
	require.Equal(t, "demo", event.KeyID)
	require.Equal(t, theirs, ours)
	require.Contains(t, ours, "\nauthorization:[redacted]\ncontent-type:text/plain")
	require.Len(t, strings.Split(ours, "\n"), 12)
	require.Contains(t, ours, "\nb=c&access_token=[redacted]&d\n")
	for _, hidden := range []string{"Bearer", "nobody", "t-0815", string(secret), r.Header.Get("X-Signature")[3:]} {
		require.NotContains(t, ours, hidden)
	}

	// Where they differ, the strings say where.
	m := fixture.Message(r)
	m.Target = "/a?b=d&access_token=t-0816&d"
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ReasonBadSignature)
	require.Equal(t, strings.Replace(theirs, "b=c", "b=d", 1), ours)
	require.Equal(t, "sign: invalid (bad_signature)", event.Err.Error())

	// A body that was not read is not read for this.
	m = fixture.Message(r)
	m.Source.(*fixture.Source).Header.Set("X-Timestamp", "1")
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeExpired)
	require.Contains(t, ours, "\n[the body was not read]\n")
	require.Zero(t, m.Source.(*fixture.Source).Reads)

	// What was not understood has no string.
	m.Source.(*fixture.Source).Header.Del("X-Key-Id")
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeMissing)
	require.Empty(t, ours)
	require.Empty(t, event.KeyID)
}

// An Event that is kept says nothing more: its message belongs to another request.
func TestAnEventThatIsKept(t *testing.T) {
	key := newHMAC(t, "demo")
	var kept sign.Event
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Observe: func(_ context.Context, e sign.Event) {
		require.NotEmpty(t, e.SigningString())
		kept = e
	}}))
	_, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, key, sign.RequestOptions{})))
	require.NoError(t, err)
	require.Empty(t, kept.SigningString())
	require.Empty(t, sign.Event{}.SigningString())
}

// The request line counts as the header does, and what observers get to see of a message has an end.
func TestLongTargets(t *testing.T) {
	key := newHMAC(t, "demo")
	var observed string
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Observe: func(_ context.Context, e sign.Event) { observed = e.SigningString() }}))
	m := fixture.Message(signedRequest(t, key, sign.RequestOptions{}))
	_, bytes := m.Source.HeaderSize()
	room := 32<<10 - bytes - len(m.Method) - len(m.Host)
	m.Target = "/?" + strings.Repeat("x", room-2)
	_, err := v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ReasonBadSignature, "it is just short enough")
	require.Len(t, observed, 4<<10+len("[cut off]"))
	require.True(t, strings.HasPrefix(observed, "v1\ndemo\nPOST\n") && strings.HasSuffix(observed, "x[cut off]"), observed)
	for _, change := range []func(){
		func() { m.Target += "x" },
		func() { m.Method += "X" },
		func() { m.Host += "x" },
	} {
		target, method, host := m.Target, m.Method, m.Host
		change()
		_, err = v.Verify(t.Context(), m)
		require.ErrorIs(t, err, sign.CodeMalformed)
		m.Target, m.Method, m.Host = target, method, host
	}
}

// What an event names is a key id, whatever was sent.
func TestEventsNameKeysOnly(t *testing.T) {
	var named string
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing()), Observe: func(_ context.Context, e sign.Event) { named += e.KeyID }}))
	m := fixture.Message(signedRequest(t, newHMAC(t, "demo"), sign.RequestOptions{}))
	m.Source.(*fixture.Source).Header.Set("X-Key-Id", strings.Repeat("x\t", 1000))
	m.Source.(*fixture.Source).Header.Del("X-Nonce")
	_, err := v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeMalformed)
	require.Empty(t, named)
}

// counted counts how often a scheme compares.
type counted struct {
	sign.Scheme
	checks int
}

func (c *counted) Check(m *sign.Message, s *sign.Signature, key *sign.Key) error {
	c.checks++
	return c.Scheme.Check(m, s, key)
}

// A key of another kind is found out without any arithmetic. That must not tell that its id is
// known.
func TestAWrongAlgorithmTakesAsLong(t *testing.T) {
	_, verifier := newEd25519(t)
	scheme := &counted{Scheme: standardV1(t)}
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(verifier)), Scheme: scheme}))
	_, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, newHMAC(t, "ed"), sign.RequestOptions{})))
	require.ErrorIs(t, err, sign.ReasonWrongAlgorithm)
	require.Equal(t, 2, scheme.checks)
}

func TestPublicHost(t *testing.T) {
	key := newHMAC(t, "demo")
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Host: "API.example.com", Hosts: []string{"10.0.0.7:8080"}}))
	m := fixture.Message(signedRequest(t, key, sign.RequestOptions{}))
	m.Host = "10.0.0.7:8080" // what the proxy makes of it
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
	_, err = v.Verify(t.Context(), fixture.Message(signedRequest(t, key, sign.RequestOptions{})))
	require.ErrorIs(t, err, sign.CodeInvalid, "it has not come through the proxy")
}

// What was sent is compared with the hosts of the configuration, and everything that names a host names one.
func TestHosts(t *testing.T) {
	key := newHMAC(t, "demo")
	one := sign.Config{Keys: sign.Must(sign.NewRing(key)), Host: "api.example.com"}
	several := sign.Config{Keys: sign.Must(sign.NewRing(key)), Hosts: []string{"www.example.com:8443", "API.example.com"}}
	neither := sign.Config{Keys: sign.Must(sign.NewRing(key))}
	const path = "/transfers/a%2Fb?x=2&x=1"
	for _, c := range []struct {
		name         string
		config       sign.Config
		target, host string
		line         []string // what the header has of Host
		want         error
	}{
		{"the one", one, path, "api.example.com", nil, nil},
		{"the one, in capitals", one, path, "API.EXAMPLE.COM", nil, nil},
		{"another than the one", one, path, "staging.example.com", nil, sign.CodeInvalid},
		{"one of several", several, path, "api.example.com", nil, nil},
		{"none of several", several, path, "www.example.com", nil, sign.CodeInvalid},
		{"no host", one, path, "", nil, sign.CodeMalformed},
		{"an absolute target", several, "http://api.example.com" + path, "api.example.com", nil, nil},
		{"an absolute target alone", several, "http://api.example.com" + path, "", nil, nil},
		{"an absolute target over another host", neither, "http://api.example.com" + path, "b.example.com", nil, sign.CodeMalformed},
		{"an absolute target over another port", neither, "http://api.example.com" + path, "api.example.com:80", nil, sign.CodeMalformed},
		{"a Host that is equal", neither, path, "api.example.com", []string{"api.Example.com"}, nil},
		{"a Host that is empty", neither, path, "api.example.com", []string{""}, nil},
		{"a Host that differs", neither, path, "api.example.com", []string{"b.example.com"}, sign.CodeMalformed},
		{"a Host that differs from the target", neither, "http://api.example.com" + path, "api.example.com", []string{"b.example.com"}, sign.CodeMalformed},
	} {
		m := fixture.Message(signedRequest(t, key, sign.RequestOptions{}))
		m.Target, m.Host = c.target, c.host
		if c.line != nil {
			m.Source.(*fixture.Source).Header["Host"] = c.line
		}
		_, err := sign.Must(sign.NewVerifier(c.config)).Verify(t.Context(), m)
		require.ErrorIs(t, err, c.want, c.name)
	}
}

func TestUnreadableBody(t *testing.T) {
	key := newHMAC(t, "demo")
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))}))
	m := fixture.Message(signedRequest(t, key, sign.RequestOptions{}))
	broken := errors.New("connection reset")
	m.Source.(*fixture.Source).Err = broken
	_, err := v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeMalformed)
	require.ErrorIs(t, err, broken)
}

func TestContext(t *testing.T) {
	_, ok := sign.From(t.Context())
	require.False(t, ok)
	v, ok := sign.From(sign.NewContext(t.Context(), sign.Verified{KeyID: "demo"}))
	require.True(t, ok)
	require.Equal(t, "demo", v.KeyID)
}

func TestErrors(t *testing.T) {
	cause := errors.New("refused")
	err := sign.Errorf(sign.ReasonUnknownKey, "asked %s: %w", "the database", cause)
	require.ErrorIs(t, err, sign.CodeInvalid)
	require.ErrorIs(t, err, sign.ReasonUnknownKey)
	require.NotErrorIs(t, err, sign.ReasonRevokedKey)
	require.NotErrorIs(t, err, sign.CodeMissing)
	require.NotErrorIs(t, sign.CodeInvalid, sign.ReasonUnknownKey)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "sign: invalid (unknown_key): asked the database: refused")
	require.EqualError(t, sign.Errorf(sign.CodeMissing, ""), "sign: missing")
}
