package sign_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
)

// refusedBy returns the answer of a verifier to an error.
func refusedBy(v *sign.Verifier, err error) (status int, header map[string]string, body string) {
	r := v.Refusal(err)
	header = make(map[string]string)
	for _, f := range r.Header {
		header[f.Name] = f.Value
	}
	return r.Status, header, string(r.Body)
}

func TestConfigFaultsAreReportedAtOnce(t *testing.T) {
	_, err := sign.NewVerifier(sign.Config{
		StoreTimeout: time.Hour, Keys: (*sign.Ring)(nil), Scheme: (*sign.V1)(nil), Nonces: (*sign.MemoryNonces)(nil), Window: 90*time.Second + 1, Margin: math.MaxInt64, BodyLimit: -1, MaxHeaderLines: -1, MaxHeaderBytes: -1, Host: "https://shop.test",
	})
	var faults []string
	for _, fault := range err.(interface{ Unwrap() []error }).Unwrap() {
		var config *sign.ConfigError
		require.ErrorAs(t, fault, &config)
		faults = append(faults, config.Field)
	}
	require.Equal(t, []string{
		"Config.Keys", "Config.Scheme", "Config.Nonces", "Config.Window", "Config.Margin", "Config.BodyLimit", "Config.MaxHeaderLines", "Config.MaxHeaderBytes",
		"Config.StoreTimeout", "Config.Host",
	}, faults)
	_, err = sign.NewVerifier(sign.Config{Keys: sign.MustRing(), Window: 61 * time.Minute})
	require.ErrorContains(t, err, "up to 1h0m0s")
	_, err = sign.NewVerifier(sign.Config{Keys: sign.KeyFunc(nil)})
	require.ErrorContains(t, err, "Config.Keys")
	require.Panics(t, func() { sign.MustVerifier(sign.Config{}) })
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
	large := func(m *sign.Message) { m.Source.(*incoming).body = make([]byte, 1<<20+1) }
	tampered := func(m *sign.Message) { m.Method = "PUT" }
	for _, c := range []struct {
		name   string
		key    *sign.Key
		at     time.Duration // when it was signed, from now
		change []func(*sign.Message)
		want   *sign.Error
		reads  int // of the body
		nonces int32
	}{
		{"header too long", stranger, -time.Hour, []func(*sign.Message){
			func(m *sign.Message) { m.Source.(*incoming).header["X-Padding"] = make([]string, 101) },
			func(m *sign.Message) { m.Source.(*incoming).header.Del("X-Nonce") }, large, tampered,
		}, sign.ErrMalformed, 0, 0},
		{"form", stranger, -time.Hour, []func(*sign.Message){
			func(m *sign.Message) { m.Source.(*incoming).header.Del("X-Nonce") }, large, tampered,
		}, sign.ErrMissing, 0, 0},
		{"timestamp", stranger, -time.Hour, []func(*sign.Message){large, tampered}, sign.ErrExpired, 0, 0},
		{"body, whether the key is known", stranger, 0, []func(*sign.Message){large, tampered}, sign.ErrBodyTooLarge, 1, 0},
		{"body, or not", key, 0, []func(*sign.Message){large, tampered}, sign.ErrBodyTooLarge, 1, 0},
		{"key", stranger, 0, []func(*sign.Message){tampered}, sign.ErrUnknownKey, 1, 0},
		{"signature", key, 0, []func(*sign.Message){tampered}, sign.ErrBadSignature, 1, 0},
		{"nonce", key, 0, nil, nil, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			nonces := &countingNonces{NonceStore: sign.NewMemoryNonces(0)}
			v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Nonces: nonces, Clock: fixedClock})
			m := messageOf(signedRequest(t, c.key, &sign.RequestOptions{Clock: func() time.Time { return now.Add(c.at) }}))
			for _, change := range c.change {
				change(m)
			}
			verified, err := v.Verify(t.Context(), m)
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, sign.Verified{KeyID: "demo", Scheme: "v1", Algorithm: sign.HMACSHA256, Time: now, Nonce: verified.Nonce}, verified)
				require.Equal(t, m.Source.(*incoming).header.Get("X-Nonce"), verified.Nonce)
			} else {
				require.ErrorIs(t, err, c.want)
				require.Zero(t, verified)
			}
			require.Equal(t, c.reads, m.Source.(*incoming).reads)
			require.Equal(t, c.nonces, nonces.calls.Load())
		})
	}
}

// The window is the same on both sides, and whole seconds are compared: the fraction of the
// verifier's second does not count.
func TestWindow(t *testing.T) {
	key := newHMAC(t, "demo")
	for _, fraction := range []time.Duration{0, 999 * time.Millisecond} {
		v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Window: 5 * time.Second, Clock: func() time.Time { return now.Add(fraction) }})
		for _, c := range []struct {
			at   time.Duration
			want error
		}{{-6 * time.Second, sign.ErrExpired}, {-5 * time.Second, nil}, {0, nil}, {5 * time.Second, nil}, {6 * time.Second, sign.ErrNotYetValid}} {
			m := messageOf(signedRequest(t, key, &sign.RequestOptions{Clock: func() time.Time { return now.Add(c.at) }}))
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
		nonces := sign.NewMemoryNonces(0)
		v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Nonces: nonces, Margin: time.Second})
		r := signedRequest(t, key, &sign.RequestOptions{Clock: func() time.Time { return time.Now().Add(time.Minute) }})
		_, err := v.Verify(t.Context(), messageOf(r))
		require.NoError(t, err)
		began := time.Now()
		for time.Since(began) < 2*time.Minute+time.Second {
			_, err := v.Verify(t.Context(), messageOf(r))
			require.ErrorIs(t, err, sign.ErrReplayed, "%v", time.Since(began))
			time.Sleep(500 * time.Millisecond)
		}
		_, err = v.Verify(t.Context(), messageOf(r))
		require.ErrorIs(t, err, sign.ErrExpired)
		require.Equal(t, 1, nonces.Len())
		time.Sleep(6 * time.Second) // Margin, and the time that keys and nonces may take
		for range 2000 {            // each call forgets a few of its shard
			_, err := nonces.Use(t.Context(), "other", newNonce(), time.Second)
			require.NoError(t, err)
		}
		require.Equal(t, 2000, nonces.Len())
	})
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
		{"beyond it", time.Minute + time.Second, nil, sign.ErrExpired},
		{"until the key has expired", 50 * time.Second, nil, sign.ErrKeyExpired},
		{"until the key is revoked", time.Second, func(r *sign.Ring) { r.Revoke("demo") }, sign.ErrRevokedKey},
		{"until the key has gone", time.Second, func(r *sign.Ring) {
			keys, _ := r.Keys(context.Background(), "demo")
			r.Remove(keys[0])
			_ = r.Add(newHMAC(t, "demo"))
		}, sign.ErrBadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, until := now, time.Time{}
			if c.want == sign.ErrKeyExpired {
				until = now.Add(50 * time.Second)
			}
			key := newHMAC(t, "demo", sign.ValidUntil(until))
			ring := sign.MustRing(key)
			v := sign.MustVerifier(sign.Config{Keys: ring, Clock: func() time.Time { return clock }})
			m := messageOf(signedRequest(t, key, &sign.RequestOptions{Clock: fixedClock}))
			m.Source.(*incoming).meanwhile = func() {
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
	v := sign.MustVerifier(sign.Config{Clock: func() time.Time { return clock }, Keys: sign.KeyFunc(func(_ context.Context, id string) ([]*sign.Key, error) {
		key, err := sign.NewHMACKey(id, []byte(designSecret))
		return []*sign.Key{key}, err
	})})
	m := messageOf(signedRequest(t, sign.MustKey(sign.NewHMACKey("demo", []byte(designSecret))), &sign.RequestOptions{Clock: fixedClock}))
	m.Source.(*incoming).meanwhile = func() { clock = clock.Add(time.Second) }
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
}

func TestOfManyAtOnceOneIsFirst(t *testing.T) {
	key := newHMAC(t, "demo")
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key)})
	r := signedRequest(t, key, nil)
	var accepted, replayed atomic.Int32
	var all sync.WaitGroup
	messages := make([]*sign.Message, 100)
	for i := range messages {
		messages[i] = messageOf(r)
	}
	for _, m := range messages {
		all.Go(func() {
			switch _, err := v.Verify(context.Background(), m); {
			case err == nil:
				accepted.Add(1)
			case errors.Is(err, sign.ErrReplayed):
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
	revoked, early, late := newHMAC(t, "revoked"), newHMAC(t, "early", sign.ValidFrom(now.Add(time.Second))), newHMAC(t, "late", sign.ValidUntil(now))
	ring := sign.MustRing(known, revoked, early, late)
	ring.Revoke("revoked")
	var reasons []string
	v := sign.MustVerifier(sign.Config{Keys: ring, Clock: fixedClock, Observe: func(_ context.Context, e sign.Event) {
		reasons = append(reasons, e.Err.Reason+" "+e.KeyID)
	}})
	var answers []*sign.Refusal
	for _, key := range []*sign.Key{newHMAC(t, "unknown"), revoked, early, late, newHMAC(t, "known")} {
		_, err := v.Verify(t.Context(), messageOf(signedRequest(t, key, &sign.RequestOptions{Clock: fixedClock})))
		require.ErrorIs(t, err, sign.ErrInvalid)
		answers = append(answers, v.Refusal(err))
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
		v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key[1])})
		_, err := v.Verify(t.Context(), messageOf(signedRequest(t, key[0], nil)))
		require.NoError(t, err)

		m := messageOf(signedRequest(t, key[0], nil))
		s := &sign.Signature{KeyID: "somebody-else", Created: time.Now().Unix(), Nonce: newNonce(), Covered: []string{"Content-Type"}}
		added, err := standardV1(t).Sign(m, s, key[0])
		require.NoError(t, err)
		for _, f := range added.Header {
			m.Source.(*incoming).header.Set(f.Name, f.Value)
		}
		_, err = v.Verify(t.Context(), m)
		require.ErrorIs(t, err, sign.ErrUnknownKey)
	}
}

func TestSeveralKeysOfOneID(t *testing.T) {
	older, newer := newHMAC(t, "shop", sign.ValidUntil(now.Add(time.Hour))), newHMAC(t, "shop", sign.ValidFrom(now.Add(-time.Hour)))
	clock := now
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(older, newer), Clock: func() time.Time { return clock }})
	verify := func(key *sign.Key) error {
		_, err := v.Verify(t.Context(), messageOf(signedRequest(t, key, &sign.RequestOptions{Clock: func() time.Time { return clock }})))
		return err
	}
	require.NoError(t, verify(older))
	require.NoError(t, verify(newer))
	require.ErrorIs(t, verify(newHMAC(t, "shop")), sign.ErrBadSignature)
	clock = now.Add(time.Hour)
	require.ErrorIs(t, verify(older), sign.ErrBadSignature, "its time is over; the other one does not fit")
	require.NoError(t, verify(newer))
	clock = now.Add(-2 * time.Hour)
	require.ErrorIs(t, verify(newer), sign.ErrBadSignature)
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
		{"nothing found", nil, nil, sign.ErrUnknownKey},
		{"unknown", nil, sign.ErrUnknownKey, sign.ErrUnknownKey},
		{"revoked, wrapped", nil, errors.Join(sign.ErrRevokedKey), sign.ErrRevokedKey},
		{"broken", nil, broken, sign.ErrStoreUnavailable},
		{"revoked, but handed out", []*sign.Key{key}, sign.ErrRevokedKey, sign.ErrRevokedKey},
		{"a nil key", []*sign.Key{nil}, nil, sign.ErrUnknownKey},
		{"a nil key beside a good one", []*sign.Key{nil, key}, nil, nil},
		{"the last of eight", append(slices.Repeat([]*sign.Key{newHMAC(t, "demo")}, 7), key), nil, nil},
		{"the ninth", append(slices.Repeat([]*sign.Key{newHMAC(t, "demo")}, 8), key), nil, sign.ErrBadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := sign.MustVerifier(sign.Config{Clock: fixedClock, Keys: sign.KeyFunc(func(ctx context.Context, id string) ([]*sign.Key, error) {
				if _, ok := ctx.Deadline(); !ok || id != "demo" {
					t.Errorf("asked for %q, deadline: %t", id, ok)
				}
				return c.keys, c.err
			})})
			_, err := v.Verify(t.Context(), messageOf(signedRequest(t, key, &sign.RequestOptions{Clock: fixedClock})))
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
				v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Nonces: nonces, StoreTimeout: time.Second})
				began := time.Now()
				_, err := v.Verify(t.Context(), messageOf(signedRequest(t, key, nil)))
				require.ErrorIs(t, err, sign.ErrStoreUnavailable)
				require.LessOrEqual(t, time.Since(began), time.Second)
				status, header, body := refusedBy(v, err)
				require.Equal(t, 503, status)
				require.Equal(t, "1", header["Retry-After"])
				require.NotContains(t, body, "READONLY")
				require.NotContains(t, header, "WWW-Authenticate")
			})
		})
	}
}

func fullNonces(t *testing.T) sign.NonceStore {
	n := sign.NewMemoryNonces(1)
	for {
		if _, err := n.Use(t.Context(), "filler", newNonce(), time.Hour); err != nil {
			require.ErrorIs(t, err, sign.ErrNoncesFull)
			if n.Len() == 64 { // every shard
				return n
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(), Clock: fixedClock})
	for _, c := range []struct {
		err    *sign.Error
		status int
		code   string
	}{
		{sign.ErrMissing, 401, "missing"}, {sign.ErrInvalid, 401, "invalid"}, {sign.ErrExpired, 401, "expired"},
		{sign.ErrNotYetValid, 401, "not_yet_valid"}, {sign.ErrReplayed, 401, "replayed"}, {sign.ErrMalformed, 400, "malformed"},
		{sign.ErrDuplicateHeader, 400, "duplicate_header"}, {sign.ErrBodyTooLarge, 413, "body_too_large"},
		{sign.ErrStoreUnavailable, 503, "store_unavailable"}, {sign.ErrUncovered, 401, "invalid"}, {sign.ErrDigestMismatch, 401, "invalid"},
		{&sign.Error{Code: "made up"}, 401, "invalid"},
	} {
		status, header, body := refusedBy(v, sign.Errorf(c.err, "inner matters"))
		require.Equal(t, c.status, status)
		require.Equal(t, c.status, c.err.Status())
		require.NotContains(t, body, "inner matters")
		var problem map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &problem))
		require.Equal(t, c.code, problem["code"])
		require.EqualValues(t, c.status, problem["status"])
		require.Equal(t, "https://github.com/idem-go/idem/blob/main/README.md#"+c.code, problem["type"])
		require.NotEmpty(t, problem["title"])
		require.NotEmpty(t, problem["detail"])
		want := map[string]string{"Cache-Control": "no-store", "Content-Type": "application/problem+json"}
		if c.status == 401 {
			want["WWW-Authenticate"] = `Signature scheme="v1"`
		}
		if c.code == "expired" || c.code == "not_yet_valid" {
			want["Date"] = "Tue, 14 Nov 2023 22:13:20 GMT"
		}
		if c.status == 503 {
			want["Retry-After"] = "1"
		}
		require.Equal(t, want, header)
	}
	// An error that is none of ours refuses, and says nothing.
	status, _, body := refusedBy(v, errors.New("inner matters"))
	require.Equal(t, 401, status)
	require.NotContains(t, body, "inner matters")
}

func TestRefusalBody(t *testing.T) {
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(), RefusalBody: func(e *sign.Error) (string, []byte) {
		body, _ := json.Marshal(map[string]any{"code": 40100, "msg": e.Title(), "type": e.Type()})
		e.Code = "changed"
		return "application/json", body
	}})
	status, header, body := refusedBy(v, sign.ErrReplayed)
	require.Equal(t, 401, status)
	require.Equal(t, "application/json", header["Content-Type"])
	require.JSONEq(t, `{"code":40100,"msg":"Request replayed","type":"https://github.com/idem-go/idem/blob/main/README.md#replayed"}`, body)
	require.Equal(t, sign.CodeReplayed, sign.ErrReplayed.Code)
}

// Both sides show the same string, and nothing secret is in it.
func TestObserve(t *testing.T) {
	secret := []byte("a secret that nobody may ever see")
	key := sign.MustKey(sign.NewHMACKey("demo", secret))
	var ours, theirs string
	var event sign.Event
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Observe: func(_ context.Context, e sign.Event) {
		event, ours = e, e.SigningString()
	}})
	r, err := http.NewRequest("POST", "http://api.example.com/a?b=c&access_token=t-0815&d", strings.NewReader("a body that is nobody's business"))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer of a token")
	r.Header.Set("Content-Type", "text/plain")
	require.NoError(t, sign.Request(r, key, &sign.RequestOptions{
		Cover: []string{"Authorization", "Content-Type"}, Observe: func(_ *http.Request, s string) { theirs = s },
	}))
	_, err = v.Verify(t.Context(), messageOf(r))
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
	m := messageOf(r)
	m.Target = "/a?b=d&access_token=t-0816&d"
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ErrBadSignature)
	require.Equal(t, strings.Replace(theirs, "b=c", "b=d", 1), ours)
	require.Equal(t, "sign: invalid (bad_signature)", event.Err.Error())

	// A body that was not read is not read for this.
	m = messageOf(r)
	m.Source.(*incoming).header.Set("X-Timestamp", "1")
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ErrExpired)
	require.Contains(t, ours, "\n[the body was not read]\n")
	require.Zero(t, m.Source.(*incoming).reads)

	// What was not understood has no string.
	m.Source.(*incoming).header.Del("X-Key-Id")
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ErrMissing)
	require.Empty(t, ours)
	require.Empty(t, event.KeyID)
}

// An Event that is kept says nothing more: its message belongs to another request.
func TestAnEventThatIsKept(t *testing.T) {
	key := newHMAC(t, "demo")
	var kept sign.Event
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Observe: func(_ context.Context, e sign.Event) {
		require.NotEmpty(t, e.SigningString())
		kept = e
	}})
	_, err := v.Verify(t.Context(), messageOf(signedRequest(t, key, nil)))
	require.NoError(t, err)
	require.Empty(t, kept.SigningString())
	require.Empty(t, sign.Event{}.SigningString())
}

// What an event names is a key id, whatever was sent.
func TestEventsNameKeysOnly(t *testing.T) {
	var named string
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(), Observe: func(_ context.Context, e sign.Event) { named += e.KeyID }})
	m := messageOf(signedRequest(t, newHMAC(t, "demo"), nil))
	m.Source.(*incoming).header.Set("X-Key-Id", strings.Repeat("x\t", 1000))
	m.Source.(*incoming).header.Del("X-Nonce")
	_, err := v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ErrMalformed)
	require.Empty(t, named)
}

// counted counts how often a scheme compares.
type counted struct {
	*sign.V1
	checks int
}

func (c *counted) Check(m *sign.Message, s *sign.Signature, key *sign.Key) error {
	c.checks++
	return c.V1.Check(m, s, key)
}

// A key of another kind is found out without any arithmetic. That must not tell that its id is
// known.
func TestAWrongAlgorithmTakesAsLong(t *testing.T) {
	_, verifier := newEd25519(t)
	scheme := &counted{V1: standardV1(t)}
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(verifier), Scheme: scheme})
	_, err := v.Verify(t.Context(), messageOf(signedRequest(t, newHMAC(t, "ed"), nil)))
	require.ErrorIs(t, err, sign.ErrWrongAlgorithm)
	require.Equal(t, 2, scheme.checks)
}

func TestPublicHost(t *testing.T) {
	key := newHMAC(t, "demo")
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key), Host: "API.example.com"})
	m := messageOf(signedRequest(t, key, nil))
	m.Host = "10.0.0.7:8080" // what the proxy makes of it
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
}

func TestUnreadableBody(t *testing.T) {
	key := newHMAC(t, "demo")
	v := sign.MustVerifier(sign.Config{Keys: sign.MustRing(key)})
	m := messageOf(signedRequest(t, key, nil))
	broken := errors.New("connection reset")
	m.Source.(*incoming).err = broken
	_, err := v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ErrMalformed)
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
	err := sign.Errorf(sign.ErrUnknownKey, "asked %s: %w", "the database", cause)
	require.ErrorIs(t, err, sign.ErrInvalid)
	require.ErrorIs(t, err, sign.ErrUnknownKey)
	require.NotErrorIs(t, err, sign.ErrRevokedKey)
	require.NotErrorIs(t, err, sign.ErrMissing)
	require.NotErrorIs(t, sign.ErrInvalid, sign.ErrUnknownKey)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "sign: invalid (unknown_key): asked the database: refused")
	require.EqualError(t, sign.ErrMissing, "sign: missing")
}
