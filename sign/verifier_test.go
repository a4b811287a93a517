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
	"github.com/idem-go/idem/sign/signtest"
)

func TestConfigErrorsAreReportedAtOnce(t *testing.T) {
	_, err := sign.NewVerifier(sign.Config{
		StoreTimeout: time.Hour, Keys: (*sign.Ring)(nil), Scheme: (*stub)(nil), Nonces: (*sign.MemoryNonces)(nil),
		Window: 90*time.Second + 1, Margin: math.MaxInt64,
		BodyLimit: -1, MaxHeaderLines: -1, MaxHeaderBytes: -1, Host: "https://shop.test",
		Hosts: []string{"shop.test", ""}, NonceQuota: -1, MaxNonces: -1,
	})
	require.Equal(t, []string{
		"Config.Keys", "Config.Scheme", "Config.Nonces", "Config.Window", "Config.Margin", "Config.BodyLimit", "Config.MaxHeaderLines",
		"Config.MaxHeaderBytes", "Config.StoreTimeout", "Config.NonceQuota", "Config.MaxNonces", "Config.Host", "Config.Hosts",
	}, fixture.ConfigErrors(t, err))
	ring := sign.Must(sign.NewRing())
	for want, c := range map[string]sign.Config{
		"up to 1h0m0s":  {Keys: ring, Window: 61 * time.Minute},
		"up to 24h0m0s": {Keys: ring, Margin: 24*time.Hour + 1},
		"up to 10m0s":   {Keys: ring, StoreTimeout: 10*time.Minute + 1},
		"Config.NonceQuota: is 3, and MaxNonces 2": {Keys: ring, NonceQuota: 3, MaxNonces: 2},
		"Config.NonceQuota: is 65, and Nonces has room for 64": {Keys: ring,
			Nonces: &sign.MemoryNonces{Max: 64}, NonceQuota: 65, MaxNonces: 66},
		"Config.MaxNonces: is 66, and Nonces has room for 64": {Keys: ring, Nonces: &sign.MemoryNonces{Max: 64}, MaxNonces: 66},
		"Config.Keys": {Keys: fixture.KeyFunc(nil)},
	} {
		_, err := sign.NewVerifier(c)
		require.ErrorContains(t, err, want)
	}
	sign.Must(sign.NewVerifier(sign.Config{Keys: ring, Window: time.Hour, Margin: 24 * time.Hour, StoreTimeout: 10 * time.Minute}))
	sign.Must(sign.NewVerifier(sign.Config{Keys: ring, Nonces: &sign.MemoryNonces{Max: 64}, NonceQuota: 64, MaxNonces: 64}))
}

// nonceSpy is a nonce store that fails if err is set, waits for its context's end if it is silent, and otherwise takes
// every nonce for unused.
type nonceSpy struct {
	err    error
	silent bool
	used   []string
	ttl    time.Duration
}

func (s *nonceSpy) Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (bool, error) {
	if s.silent {
		<-ctx.Done()
		return false, ctx.Err()
	}
	s.used, s.ttl = append(s.used, keyID+" "+nonce), ttl
	return true, s.err // true does not count beside an error
}

func (*nonceSpy) Limits() (int, bool) { return 0, false }

// Each message has everything wrong from its row on, and gets the answer of the first: what is found earlier spares
// what comes later.
func TestTheOrderOfTheChecks(t *testing.T) {
	stranger, known := fixture.HMAC("stranger"), newHMACWith(sign.KeyConfig{ID: "demo", Owner: "acme"})
	lines := func(m *sign.Message) { fixture.SourceOf(m).Header["X-Padding"] = make([]string, 101) }
	noNonce := func(m *sign.Message) { fixture.SourceOf(m).Header.Del("X-Nonce") }
	large := func(m *sign.Message) { fixture.SourceOf(m).Body = make([]byte, 1<<20+1) }
	tampered := func(m *sign.Message) { m.Method = "PUT" }
	for _, c := range []struct {
		name   string
		key    *sign.Key
		at     time.Duration // when it was signed, from now
		change []func(*sign.Message)
		want   error
		reads  int // of the body
	}{
		{"header too long", stranger, -time.Hour, []func(*sign.Message){lines, noNonce, large, tampered}, sign.CodeMalformed, 0},
		{"form", stranger, -time.Hour, []func(*sign.Message){noNonce, large, tampered}, sign.CodeMissing, 0},
		{"timestamp", stranger, -time.Hour, []func(*sign.Message){large, tampered}, sign.CodeExpired, 0},
		{"body, if the key is unknown", stranger, 0, []func(*sign.Message){large, tampered}, sign.CodeBodyTooLarge, 1},
		{"body, if it is known", known, 0, []func(*sign.Message){large, tampered}, sign.CodeBodyTooLarge, 1},
		{"key", stranger, 0, []func(*sign.Message){tampered}, sign.ReasonUnknownKey, 1},
		{"signature", known, 0, []func(*sign.Message){tampered}, sign.ReasonBadSignature, 1},
		{"nonce", known, 0, nil, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			nonces := new(nonceSpy)
			m := fixture.Message(signedRequest(t, c.key, sign.RequestOptions{Clock: func() time.Time { return now.Add(c.at) }}))
			for _, change := range c.change {
				change(m)
			}
			verified, err := fixture.Verifier(sign.Config{Nonces: nonces}, known).Verify(t.Context(), m)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, c.reads, fixture.SourceOf(m).Reads)
			if c.want != nil {
				require.Zero(t, verified)
				require.Empty(t, nonces.used)
				return
			}
			require.Equal(t, []string{"demo " + fixture.SourceOf(m).Header.Get("X-Nonce")}, nonces.used)
		})
	}
}

func TestBodies(t *testing.T) {
	limit := int64(len(body200))
	r := signedRequest(t, signtest.Demo, sign.RequestOptions{})
	require.NoError(t, fixture.Verify(t, sign.Config{BodyLimit: limit}, r, signtest.Demo))
	require.ErrorIs(t, fixture.Verify(t, sign.Config{BodyLimit: limit - 1}, r, signtest.Demo), sign.CodeBodyTooLarge)

	m := fixture.Message(r)
	fixture.SourceOf(m).Err = errors.New("connection reset")
	_, err := fixture.Verifier(sign.Config{}, signtest.Demo).Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeMalformed)
	require.ErrorIs(t, err, fixture.SourceOf(m).Err)
}

// The window is the same on both sides, and whole seconds are compared: the fraction of the verifier's second does not count.
func TestWindow(t *testing.T) {
	for _, fraction := range []time.Duration{0, 999 * time.Millisecond} {
		for at, want := range map[int64]error{-6: sign.CodeExpired, -5: nil, 0: nil, 5: nil, 6: sign.CodeNotYetValid} {
			r := signedRequest(t, signtest.Demo, sign.RequestOptions{Clock: func() time.Time { return time.Unix(now.Unix()+at, 0) }})
			c := sign.Config{Window: 5 * time.Second, Clock: func() time.Time { return now.Add(fraction) }}
			require.ErrorIs(t, fixture.Verify(t, c, r, signtest.Demo), want, at)
		}
	}
}

// A nonce is kept for as long as its message is in the window, its last second included, and then for Margin and for two
// calls of a store.
func TestHowLongANonceIsKept(t *testing.T) {
	for _, c := range []struct {
		name   string
		config sign.Config
		signed time.Duration // from now
		clock  time.Duration // the same
		takes  time.Duration // for its body
		want   time.Duration
	}{
		{name: "by default", want: (60 + 1 + 30 + 2*2) * time.Second},
		{name: "signed ahead", signed: time.Minute, want: (60 + 60 + 1 + 30 + 2*2) * time.Second},
		{name: "signed a window ago", signed: -time.Minute, want: (1 + 30 + 2*2) * time.Second},
		{name: "another window", config: sign.Config{Window: 5 * time.Second}, want: (5 + 1 + 30 + 2*2) * time.Second},
		{name: "another margin", config: sign.Config{Margin: time.Millisecond}, want: (60+1+2*2)*time.Second + time.Millisecond},
		{name: "another limit for stores", config: sign.Config{StoreTimeout: 7 * time.Second}, want: (60 + 1 + 30 + 2*7) * time.Second},
		{name: "within a second", clock: 250 * time.Millisecond, want: (60+1+30+2*2)*time.Second - 250*time.Millisecond},
		{name: "behind a slow body", takes: 20 * time.Second, want: (60 + 1 + 30 + 2*2 - 20) * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, nonces := now.Add(c.clock), new(nonceSpy)
			c.config.Nonces, c.config.Clock = nonces, func() time.Time { return clock }
			m := fixture.Message(signedRequest(t, signtest.Demo, sign.RequestOptions{Clock: func() time.Time { return now.Add(c.signed) }}))
			fixture.SourceOf(m).Meanwhile = func() { clock = clock.Add(c.takes) }
			_, err := fixture.Verifier(c.config, signtest.Demo).Verify(t.Context(), m)
			require.NoError(t, err)
			require.Equal(t, c.want, nonces.ttl)
		})
	}
}

// Whoever has recorded a message can begin to send it in time, hold back its last byte until its nonce is forgotten, and
// then let it in. What was true before the body is checked again after it.
func TestABodyThatTakesItsTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes time.Duration
		do    func(ring *sign.Ring, key *sign.Key)
		want  error
	}{
		{"within the window", time.Minute, nil, nil},
		{"beyond it", time.Minute + time.Second, nil, sign.CodeExpired},
		{"until the key has expired", 50 * time.Second, nil, sign.ReasonKeyExpired},
		{"until the key is revoked", time.Second, func(r *sign.Ring, _ *sign.Key) { r.Revoke("demo") }, sign.ReasonRevokedKey},
		{"until the key is revoked, within the second", 0, func(r *sign.Ring, _ *sign.Key) { r.Revoke("demo") }, sign.ReasonRevokedKey},
		{"until the key is replaced", time.Second, func(r *sign.Ring, key *sign.Key) {
			r.Remove(key)
			_ = r.Add(fixture.HMAC("demo"))
		}, sign.ReasonBadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, o := now, sign.KeyConfig{ID: "demo"}
			if c.want == sign.ReasonKeyExpired {
				o.ValidUntil = now.Add(50 * time.Second)
			}
			key := newHMACWith(o)
			ring := sign.Must(sign.NewRing(key))
			m := signedMessage(t, key)
			fixture.SourceOf(m).Meanwhile = func() {
				clock = clock.Add(c.takes)
				if c.do != nil {
					c.do(ring, key)
				}
			}
			_, err := fixture.Verifier(sign.Config{Keys: ring, Clock: func() time.Time { return clock }}).Verify(t.Context(), m)
			require.ErrorIs(t, err, c.want)
		})
	}
}

// Each owner has a quota of nonces, and all have one together. Replays and what a store has not remembered do not count.
func TestQuotas(t *testing.T) {
	clock := now
	nonces := &flakyNonces{NonceStore: new(sign.MemoryNonces)}
	v := fixture.Verifier(sign.Config{NonceQuota: 3, MaxNonces: 5, Nonces: nonces, Clock: func() time.Time { return clock }},
		signtest.Demo, signtest.Bob)
	verify := func(want error, key *sign.Key) *http.Request {
		t.Helper()
		r := signedRequest(t, key, sign.RequestOptions{Clock: func() time.Time { return clock }})
		_, err := v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(t, err, want)
		return r
	}
	first := verify(nil, signtest.Demo)
	for range 3 {
		_, err := v.Verify(t.Context(), fixture.Message(first))
		require.ErrorIs(t, err, sign.CodeReplayed)
	}
	nonces.err = errors.New("down")
	for range 4 {
		verify(sign.CodeStoreUnavailable, signtest.Demo)
	}
	nonces.err = nil
	verify(nil, signtest.Demo)
	verify(nil, signtest.Demo)
	verify(sign.CodeRateLimited, signtest.Demo)
	verify(sign.ReasonBadSignature, signtest.Forger) // whose quota is used up is not for everybody
	verify(nil, signtest.Bob)
	verify(nil, signtest.Bob)
	_, err := v.Verify(t.Context(), signedMessage(t, signtest.Bob))
	require.ErrorIs(t, err, sign.ErrNoncesFull)
	require.Equal(t, 503, v.Answer(t.Context(), err).Status)

	_, err = v.Verify(t.Context(), signedMessage(t, signtest.Demo))
	answer := v.Answer(t.Context(), err)
	require.Equal(t, 429, answer.Status)
	seconds, err := time.ParseDuration(answer.Header.Get("Retry-After") + "s")
	require.NoError(t, err)
	require.Greater(t, seconds, time.Minute+30*time.Second, "until the first nonce is forgotten")
	clock = clock.Add(seconds)
	verify(nil, signtest.Demo)
}

// flakyNonces fails while err is set.
type flakyNonces struct {
	sign.NonceStore
	err error
}

func (f *flakyNonces) Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (bool, error) {
	if f.err != nil {
		return false, f.err
	}
	return f.NonceStore.Use(ctx, keyID, nonce, ttl)
}

// A message can't choose the time at which its key is good. A store of one's own, unlike a ring, is asked once within a second.
func TestAKeyIsGoodByTheVerifiersClock(t *testing.T) {
	for _, c := range []struct {
		key    sign.KeyConfig
		signed time.Duration // from now
		want   error
	}{
		{sign.KeyConfig{ID: "demo", ValidFrom: now.Add(time.Second)}, time.Second, sign.ReasonKeyNotYetValid},
		{sign.KeyConfig{ID: "demo", ValidUntil: now}, -time.Second, sign.ReasonKeyExpired},
	} {
		key := newHMACWith(c.key)
		r := signedRequest(t, key, sign.RequestOptions{Clock: func() time.Time { return now.Add(c.signed) }})
		keys := fixture.KeyFunc(func(context.Context, string) ([]*sign.Key, error) { return []*sign.Key{key}, nil })
		require.ErrorIs(t, fixture.Verify(t, sign.Config{}, r, key), c.want)
		require.ErrorIs(t, fixture.Verify(t, sign.Config{Keys: keys}, r), c.want)
	}
}

// Whatever is wrong with a key, the client sees a bad signature.
func TestNothingOutsideTellsKeys(t *testing.T) {
	revoked := fixture.HMAC("revoked")
	early, late := newHMACWith(sign.KeyConfig{ID: "early", ValidFrom: now.Add(1)}), newHMACWith(sign.KeyConfig{ID: "late", ValidUntil: now})
	ring := sign.Must(sign.NewRing(signtest.Demo, revoked, early, late))
	ring.Revoke("revoked")
	var reasons []string
	v := fixture.Verifier(sign.Config{Keys: ring, Observe: func(_ context.Context, e sign.Event) {
		reasons = append(reasons, string(e.Err.Reason)+" "+e.KeyID)
	}})
	var answers []*sign.Answer
	for _, key := range []*sign.Key{fixture.HMAC("unknown"), revoked, early, late, signtest.Forger} {
		_, err := v.Verify(t.Context(), signedMessage(t, key))
		require.ErrorIs(t, err, sign.CodeInvalid)
		answers = append(answers, v.Answer(t.Context(), err))
	}
	require.Equal(t, []string{"unknown_key unknown", "revoked_key revoked", "key_not_yet_valid early",
		"key_expired late", "bad_signature demo"}, reasons)
	require.Equal(t, slices.Repeat(answers[:1], len(answers)), answers)
}

// A message of an unknown key is checked with a key that nobody has. Whatever comes of it, the message is refused. One of a
// known key and another algorithm takes as many checks.
func TestADecoyProvesNothing(t *testing.T) {
	checks := 0
	scheme := stub{Scheme: standardV1, check: func(_ *sign.Signature, err error) error { checks++; return nil }}
	r := signedRequest(t, fixture.HMAC("nobody"), sign.RequestOptions{})
	require.ErrorIs(t, fixture.Verify(t, sign.Config{Scheme: scheme}, r, signtest.Demo), sign.ReasonUnknownKey)
	require.Equal(t, 1, checks)

	_, verifier := fixture.Pair("demo", fixture.Private().Ed25519)
	checks, scheme.check = 0, func(_ *sign.Signature, err error) error { checks++; return err }
	r = signedRequest(t, signtest.Demo, sign.RequestOptions{})
	require.ErrorIs(t, fixture.Verify(t, sign.Config{Scheme: scheme}, r, verifier), sign.ReasonWrongAlgorithm)
	require.Equal(t, 2, checks)
}

func TestSeveralKeysOfOneID(t *testing.T) {
	older := newHMACWith(sign.KeyConfig{ID: "shop", ValidUntil: now.Add(time.Hour)})
	newer := newHMACWith(sign.KeyConfig{ID: "shop", ValidFrom: now.Add(-time.Hour)})
	for _, c := range []struct {
		after time.Duration
		key   *sign.Key
		want  error
	}{
		{0, older, nil}, {0, newer, nil}, {0, fixture.HMAC("shop"), sign.ReasonBadSignature},
		// the older one is no longer valid, and the other one does not fit
		{time.Hour, older, sign.ReasonBadSignature}, {time.Hour, newer, nil},
		{-time.Hour - 1, newer, sign.ReasonBadSignature}, {-time.Hour - 1, older, nil}, {-time.Hour, newer, nil},
	} {
		at := func() time.Time { return now.Add(c.after) }
		r := signedRequest(t, c.key, sign.RequestOptions{Clock: at})
		require.ErrorIs(t, fixture.Verify(t, sign.Config{Clock: at}, r, older, newer), c.want, c.after)
	}
}

func TestKeyStores(t *testing.T) {
	key, others := signtest.Demo, []*sign.Key{signtest.Forger}
	broken := errors.New("the database is down")
	for _, c := range []struct {
		name string
		keys []*sign.Key
		err  error
		want error
		text string
	}{
		{"known", []*sign.Key{key}, nil, nil, ""},
		{"nothing found", nil, nil, sign.ReasonUnknownKey, ""},
		{"unknown", nil, sign.ReasonUnknownKey, sign.ReasonUnknownKey, ""},
		{"revoked", nil, sign.ReasonRevokedKey, sign.ReasonRevokedKey, "sign: invalid (revoked_key)"},
		{"revoked, wrapped", nil, fmt.Errorf("the database: %w", sign.ReasonRevokedKey), sign.ReasonRevokedKey,
			"sign: invalid (revoked_key): the database: revoked_key"},
		{"revoked, with details", nil, sign.Errorf(sign.ReasonRevokedKey, "in May"), sign.ReasonRevokedKey,
			"sign: invalid (revoked_key): in May"},
		{"revoked, but returned", []*sign.Key{key}, sign.ReasonRevokedKey, sign.ReasonRevokedKey, ""},
		{"broken", nil, broken, sign.CodeStoreUnavailable,
			"sign: store_unavailable (keys_unavailable): the key could not be looked up: the database is down"},
		{"a nil *Error, which is no nil error", []*sign.Key{key}, (*sign.Error)(nil), sign.CodeStoreUnavailable,
			"sign: store_unavailable (keys_unavailable): the key could not be looked up: sign: a nil *Error was returned as an error"},
		{"a nil key", []*sign.Key{nil}, nil, sign.ReasonUnknownKey, ""},
		{"a nil key beside a good one", []*sign.Key{nil, key}, nil, nil, ""},
		{"the last of eight", append(slices.Repeat(others, 7), key), nil, nil, ""},
		{"the ninth", append(slices.Repeat(others, 8), key), nil, sign.ReasonBadSignature, ""},
		{"the eighth that is not nil", append([]*sign.Key{nil}, append(slices.Repeat(others, 7), key)...), nil, nil, ""},
		{"the ninth that is not nil", append([]*sign.Key{nil}, append(slices.Repeat(others, 8), key)...), nil, sign.ReasonBadSignature, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := sign.Config{
				Keys: fixture.KeyFunc(func(ctx context.Context, id string) ([]*sign.Key, error) {
					deadline, ok := ctx.Deadline()
					if !ok || time.Until(deadline) > 2*time.Second || id != "demo" {
						t.Errorf("asked for %q, deadline: %v", id, deadline)
					}
					return c.keys, c.err
				}),
				Observe: func(_ context.Context, e sign.Event) {
					if e.Err != nil {
						e.Err.Code, e.Err.Reason = "changed", "changed" // the next message gets an error of its own
					}
				},
			}
			r := signedRequest(t, key, sign.RequestOptions{})
			_ = fixture.Verify(t, config, r)
			config.Observe = nil
			err := fixture.Verify(t, config, r)
			require.ErrorIs(t, err, c.want)
			if c.text != "" {
				require.EqualError(t, err, c.text)
			}
			if c.err == broken {
				require.ErrorIs(t, err, broken)
			}
		})
	}
}

func TestAStoreThatFailsRefuses(t *testing.T) {
	readOnly := errors.New("READONLY You can't write against a read only replica.")
	full := &sign.MemoryNonces{Max: 1}
	_, err := full.Use(t.Context(), "other", "n", time.Hour)
	require.NoError(t, err)
	for name, nonces := range map[string]sign.NonceStore{"read-only": &nonceSpy{err: readOnly},
		"silent": &nonceSpy{silent: true}, "full": full} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := fixture.Verifier(sign.Config{Nonces: nonces, StoreTimeout: time.Second}, signtest.Demo)
				began := time.Now()
				_, err := v.Verify(t.Context(), signedMessage(t, signtest.Demo))
				require.ErrorIs(t, err, sign.CodeStoreUnavailable)
				require.LessOrEqual(t, time.Since(began), time.Second)
				a := v.Answer(t.Context(), err)
				require.Equal(t, 503, a.Status)
				require.NotContains(t, string(a.Body), "READONLY")
			})
		})
	}
}

func TestAnswers(t *testing.T) {
	v := fixture.Verifier(sign.Config{})
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{sign.CodeMissing, 401, "missing"}, {sign.CodeInvalid, 401, "invalid"}, {sign.CodeExpired, 401, "expired"},
		{sign.CodeNotYetValid, 401, "not_yet_valid"}, {sign.CodeReplayed, 401, "replayed"}, {sign.CodeMalformed, 400, "malformed"},
		{sign.CodeDuplicateHeader, 400, "duplicate_header"}, {sign.CodeBodyTooLarge, 413, "body_too_large"},
		{sign.CodeRateLimited, 429, "rate_limited"}, {sign.CodeStoreUnavailable, 503, "store_unavailable"},
		{sign.ReasonUncovered, 401, "invalid"}, {sign.Code("made up"), 401, "invalid"}, {sign.Reason("made up"), 401, "invalid"},
		{errors.New("of somebody else"), 401, "invalid"}, {(*sign.Error)(nil), 401, "invalid"},
	} {
		err := sign.Errorf(c.err, "inner matters")
		require.Equal(t, c.status, err.Status())
		a := v.Answer(t.Context(), err)
		require.Equal(t, c.status, a.Status)
		require.NotContains(t, string(a.Body), "inner matters")
		var problem map[string]any
		require.NoError(t, json.Unmarshal(a.Body, &problem))
		require.NotEmpty(t, problem["title"])
		require.NotEmpty(t, problem["detail"])
		delete(problem, "title")
		delete(problem, "detail")
		require.Equal(t, map[string]any{
			"code": c.code, "status": float64(c.status), "type": "https://github.com/idem-go/idem/blob/main/docs/problems.md#" + c.code,
		}, problem)
		want := http.Header{"Cache-Control": {"no-store"}, "Content-Type": {"application/problem+json"}, "Idempotency-Refused": {c.code}}
		if c.status == 401 {
			want["Www-Authenticate"] = []string{`Signature scheme="v1"`}
		}
		if c.code == "expired" || c.code == "not_yet_valid" {
			want["Date"] = []string{"Tue, 14 Nov 2023 22:13:20 GMT"}
		}
		if c.status == 503 || c.status == 429 {
			want["Retry-After"] = []string{"1"}
		}
		require.Equal(t, want, a.Header)
	}
	require.Equal(t, 401, v.Answer(t.Context(), (*sign.Error)(nil)).Status)
}

func TestRefuse(t *testing.T) {
	type who struct{}
	ctx := context.WithValue(t.Context(), who{}, "the request")
	var made *sign.Answer
	v := fixture.Verifier(sign.Config{Refuse: func(ctx context.Context, e *sign.Error) *sign.Answer {
		require.Equal(t, "the request", ctx.Value(who{}))
		require.Equal(t, "details", e.Detail)
		e.Code = "changed" // it is the function's own
		return made
	}})
	require.Equal(t, fixture.Verifier(sign.Config{}).Answer(ctx, sign.CodeReplayed),
		v.Answer(ctx, sign.Errorf(sign.CodeReplayed, "details")), "nil is the default")

	const date = "Tue, 14 Nov 2023 22:13:20 GMT"
	header := func(fields ...string) http.Header {
		h := make(http.Header)
		for i := 0; i < len(fields); i += 2 {
			h[fields[i]] = append(h[fields[i]], fields[i+1])
		}
		return h
	}
	challenge := header("Www-Authenticate", `Signature scheme="v1"`)
	own := header("Date", "now", "Retry-After", "7", "www-authenticate", "Own")
	kept := header("Date", "now", "Retry-After", "7", "Www-Authenticate", "Own")
	for _, c := range []struct {
		code   sign.Code
		made   sign.Answer
		status int
		fields http.Header // besides those of every refusal
	}{
		{sign.CodeReplayed, sign.Answer{Body: []byte("no")}, 401, challenge},
		{sign.CodeBodyTooLarge, sign.Answer{Body: []byte("no")}, 413, nil},
		{sign.CodeBodyTooLarge, sign.Answer{}, 413, nil},
		{sign.CodeMalformed, sign.Answer{Status: 200}, 200, nil},
		{sign.CodeReplayed, sign.Answer{Status: 200}, 200, challenge},
		{sign.CodeMalformed, sign.Answer{Status: 401}, 401, challenge},
		{sign.CodeMalformed, sign.Answer{Header: header("x-own", "1", "x-own", "2", "cache-control", "public", "idempotency-refused", "")},
			400, header("X-Own", "1", "X-Own", "2")},
		{sign.CodeExpired, sign.Answer{}, 401, header("Date", date, "Www-Authenticate", `Signature scheme="v1"`)},
		{sign.CodeNotYetValid, sign.Answer{}, 401, header("Date", date, "Www-Authenticate", `Signature scheme="v1"`)},
		{sign.CodeStoreUnavailable, sign.Answer{}, 503, header("Retry-After", "1")},
		{sign.CodeExpired, sign.Answer{Header: own}, 401, kept},
		{sign.CodeStoreUnavailable, sign.Answer{Header: own}, 503, kept},
	} {
		before := sign.Answer{Status: c.made.Status, Header: c.made.Header.Clone(), Body: c.made.Body}
		made = &c.made
		want := header("Cache-Control", "no-store", "Idempotency-Refused", string(c.code))
		maps.Copy(want, c.fields)
		require.Equal(t, &sign.Answer{Status: c.status, Header: want, Body: c.made.Body}, v.Answer(ctx, sign.Errorf(c.code, "details")))
		require.Equal(t, before, c.made, "it is the function's own")
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("the cause")
	err := error(sign.Errorf(sign.ReasonRevokedKey, "details of %s: %w", "it", cause))
	for target, want := range map[error]bool{
		sign.CodeInvalid: true, sign.ReasonRevokedKey: true, cause: true, &sign.Error{Code: sign.CodeInvalid}: true,
		sign.Errorf(sign.ReasonRevokedKey, ""): true, sign.CodeMalformed: false, sign.ReasonUnknownKey: false,
		&sign.Error{Code: sign.CodeMalformed}: false, sign.Errorf(sign.ReasonUnknownKey, ""): false, sign.Code("revoked_key"): false,
		sign.Reason("invalid"): false, sign.Reason(""): false, (*sign.Error)(nil): false,
	} {
		require.Equal(t, want, errors.Is(err, target), target)
	}
	require.EqualError(t, err, "sign: invalid (revoked_key): details of it: the cause")
	require.EqualError(t, sign.Errorf(sign.CodeMissing, ""), "sign: missing")
	require.NotErrorIs(t, sign.Errorf(sign.CodeInvalid, ""), sign.Reason(""))
	require.ErrorIs(t, sign.ReasonRevokedKey, sign.CodeInvalid)
	require.NotErrorIs(t, sign.ReasonRevokedKey, sign.CodeMalformed)
	require.NotErrorIs(t, sign.CodeInvalid, sign.ReasonUnknownKey)
	require.Equal(t, "revoked_key replayed", fmt.Sprint(sign.ReasonRevokedKey, " ", sign.CodeReplayed))
	require.NotErrorIs(t, (*sign.Error)(nil), sign.CodeInvalid)
	require.NoError(t, errors.Unwrap((*sign.Error)(nil)))
}

// A scheme's error of another kind refuses. It is what the error wraps, and the error's detail.
func TestASchemesOwnError(t *testing.T) {
	for _, own := range []error{errors.New("odd"), fmt.Errorf("odd: %w", sign.CodeMissing)} {
		scheme := stub{Scheme: standardV1, parse: func(*sign.Signature) error { return own }}
		err := fixture.Verify(t, sign.Config{Scheme: scheme}, signedRequest(t, signtest.Demo, sign.RequestOptions{}), signtest.Demo)
		require.ErrorIs(t, err, own)
		require.Equal(t, own.Error(), err.(*sign.Error).Detail)
	}
}

// A message is refused if its scheme forgets what tells messages apart.
func TestSchemesWithoutNonceRefuse(t *testing.T) {
	for _, change := range []func(*sign.Signature){
		func(s *sign.Signature) { s.Nonce = "" },
		func(s *sign.Signature) { s.NoTimestamp, s.EventID = true, "" },
	} {
		scheme := stub{Scheme: standardV1, check: func(s *sign.Signature, err error) error { change(s); return err }}
		err := fixture.Verify(t, sign.Config{Scheme: scheme}, signedRequest(t, signtest.Demo, sign.RequestOptions{}), signtest.Demo)
		require.ErrorIs(t, err, sign.CodeInvalid)
		require.ErrorContains(t, err, "scheme v1 has set no")
	}
}

// The names of consumed parameters are copied: they may share memory with the message. The next message has none of them.
func TestConsumed(t *testing.T) {
	memory := []byte("timestamp")
	scheme := stub{Scheme: standardV1}
	verify := func(consumed ...string) sign.Verified {
		scheme.parse = func(s *sign.Signature) error { s.Consumed = append(s.Consumed, consumed...); return nil }
		verified, err := fixture.Verifier(sign.Config{Scheme: scheme}, signtest.Demo).Verify(t.Context(), signedMessage(t, signtest.Demo))
		require.NoError(t, err)
		return verified
	}
	first := verify(unsafe.String(&memory[0], len(memory)))
	copy(memory, "xxxxxxxxx")
	require.Nil(t, verify().Consumed)
	require.Equal(t, []string{"other"}, verify("other").Consumed)
	require.Equal(t, []string{"timestamp"}, first.Consumed)
}

// What was sent is compared with the hosts of the configuration, and everything that names a host names the same one. No
// character of a request line can begin another line of what is signed.
func TestHostsAndTargets(t *testing.T) {
	one := sign.Config{Host: "API.example.com"}
	proxied := sign.Config{Host: "API.example.com", Hosts: []string{"10.0.0.7:8080"}}
	several := sign.Config{Hosts: []string{"www.example.com:8443", "API.example.com"}}
	neither := sign.Config{}
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
		{"a Host that differs from the target", neither, "http://api.example.com" + path, "api.example.com",
			[]string{"b.example.com"}, sign.CodeMalformed},
		{"behind the proxy", proxied, path, "10.0.0.7:8080", nil, nil},
		{"past the proxy", proxied, path, "api.example.com", nil, sign.CodeInvalid},
		{"a line feed in the host", neither, path, "a\nb", nil, sign.CodeMalformed},
		{"a line feed in the target", neither, path + "\n", "api.example.com", nil, sign.CodeMalformed},
		{"a NUL in the target", neither, "/\x00", "api.example.com", nil, sign.CodeMalformed},
		{"a fragment, which some servers cut off", neither, path + "#fragment", "api.example.com", nil, sign.CodeMalformed},
	} {
		m := signedMessage(t, signtest.Demo)
		m.Target, m.Host = c.target, c.host
		if c.line != nil {
			fixture.SourceOf(m).Header["Host"] = c.line
		}
		_, err := fixture.Verifier(c.config, signtest.Demo).Verify(t.Context(), m)
		require.ErrorIs(t, err, c.want, c.name)
	}
	for _, method := range []string{"", "POST\napi"} {
		m := signedMessage(t, signtest.Demo)
		m.Method = method
		_, err := fixture.Verifier(neither, signtest.Demo).Verify(t.Context(), m)
		require.ErrorIs(t, err, sign.CodeMalformed)
	}
}

// Messages that are verified at once share nothing, nor does an event that its observer keeps. Of equal ones, one is
// accepted. The ring may change meanwhile.
func TestManyMessagesAtOnce(t *testing.T) {
	var all, observers sync.WaitGroup
	ring := sign.Must(sign.NewRing(signtest.Demo))
	v := fixture.Verifier(sign.Config{Keys: ring, Observe: func(_ context.Context, e sign.Event) {
		observers.Go(func() { e.SigningString() })
	}})
	var accepted, replayed atomic.Int32
	for i := range 50 {
		r := fixture.Sign(t, signtest.NewRequest(t, nil, fmt.Sprintf("http://h/%d", i), strings.Repeat("x", i), "Idempotency-Key",
			fmt.Sprint(i)), signtest.Demo, sign.RequestOptions{})
		for range 8 {
			m := fixture.Message(r)
			all.Go(func() {
				switch _, err := v.Verify(context.Background(), m); {
				case err == nil:
					accepted.Add(1)
				case errors.Is(err, sign.CodeReplayed):
					replayed.Add(1)
				}
			})
		}
		all.Go(func() {
			if err := ring.Add(signtest.Forger); err == nil {
				ring.Remove(signtest.Forger)
			}
			ring.Revoke(fmt.Sprint(i))
		})
	}
	all.Wait()
	observers.Wait()
	require.EqualValues(t, 50, accepted.Load())
	require.EqualValues(t, 50*7, replayed.Load())
}

// demanding is a scheme with demands.
type demanding struct {
	sign.Scheme
	demands sign.Demands
}

func (d demanding) Demands() sign.Demands { return d.demands }

func TestDemands(t *testing.T) {
	v1 := sign.Must(sign.NewV1(sign.V1Config{}))
	for _, c := range []struct {
		config  sign.Config
		demands sign.Demands
		want    []string
	}{
		{sign.Config{}, sign.Demands{Guard: true}, []string{"Config.GuardedByKey"}},
		{sign.Config{GuardedByKey: true}, sign.Demands{Guard: true}, nil},
		{sign.Config{Window: time.Minute}, sign.Demands{Behind: time.Minute}, []string{"Config.Window"}},
		{sign.Config{}, sign.Demands{Behind: 2 * time.Hour}, []string{"Config.Scheme"}},
		{sign.Config{}, sign.Demands{Behind: time.Minute, Ahead: -time.Second}, []string{"Config.Scheme"}},
	} {
		c.config.Keys, c.config.Scheme = sign.Must(sign.NewRing()), demanding{v1, c.demands}
		_, err := sign.NewVerifier(c.config)
		if c.want == nil {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, c.want, fixture.ConfigErrors(t, err))
	}

	// The window is as demanded, and the last check comes when the nonce is used up.
	now, refuse := fixture.Now, error(sign.CodeMalformed)
	scheme := demanding{v1,
		sign.Demands{Behind: 100 * time.Second, Ahead: 10 * time.Second, Finish: func(*sign.Message) error { return refuse }}}
	v := fixture.Verifier(sign.Config{Scheme: scheme, Clock: func() time.Time { return now }}, signtest.Demo)
	r := fixture.Sign(t, signtest.NewRequest(t, nil, "http://shop.test/a", "{}"), signtest.Demo, sign.RequestOptions{})
	for _, c := range []struct {
		later time.Duration
		want  error
	}{{-11 * time.Second, sign.CodeNotYetValid}, {101 * time.Second, sign.CodeExpired}, {100 * time.Second, sign.CodeMalformed},
		{-10 * time.Second, sign.CodeReplayed}} {
		now = fixture.Now.Add(c.later)
		_, err := v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(t, err, c.want, c.later)
	}
}
