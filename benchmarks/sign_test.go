package benchmarks

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/rfc9421"
	"github.com/idem-go/idem/sign/sortedparams"
	"github.com/idem-go/idem/sign/webhook"
)

// flat is a body of 200 bytes that every scheme can sign, also those that sign parameters.
var flat = func() []byte {
	b := []byte(`{"order":"ord-1001","amount":"19.90","currency":"EUR","to":"bob","fill":"`)
	return append(b, strings.Repeat("x", 198-len(b))+`"}`...)
}()

// anyNonce is a nonce store that costs nothing: it counts.
type anyNonce struct{ used int }

func (n *anyNonce) Use(context.Context, string, string, time.Duration) (bool, error) {
	n.used++
	return true, nil
}

// Limits spares the verifier a deadline, as those of a memory store do.
func (n *anyNonce) Limits() (capacity int, ownTimeout bool) { return 0, true }

// sent is a message that is to be signed.
type sent struct {
	target, contentType string
	body                []byte
}

// byJSON has its parameters in flat.
var byJSON = sent{"/orders", "application/json", flat}

// bySource has the parameters of flat in each of the places that package sortedparams knows.
var bySource = func() map[string]sent {
	var members map[string]string
	if err := json.Unmarshal(flat, &members); err != nil {
		panic(err)
	}
	pairs := make(url.Values)
	for name, value := range members {
		pairs.Set(name, value)
	}
	return map[string]sent{
		"query": {"/orders?" + pairs.Encode(), "", nil},
		"form":  {"/orders", "application/x-www-form-urlencoded", []byte(pairs.Encode())},
		"json":  byJSON,
	}
}()

// arrived is header and body of a message, as an adapter has them.
type arrived struct {
	header http.Header
	body   []byte
}

func (a *arrived) Values(name string) []string { return a.header[name] }

func (a *arrived) HeaderSize() (lines, bytes int) {
	for name, values := range a.header {
		lines += len(values)
		for _, v := range values {
			bytes += len(name) + len(v)
		}
	}
	return lines, bytes
}

func (*arrived) RemoteAddr() string { return "" }

func (a *arrived) ReadBody(limit int64) ([]byte, error) {
	if int64(len(a.body)) > limit {
		return nil, sign.CodeBodyTooLarge
	}
	return a.body, nil
}

// BenchmarkSign is what it costs to verify a message with a body of 200 bytes, by scheme (and by where
// its parameters stand, for those that sign parameters), without the store of nonces. "by-hand" is the same done without the
// package; "floor" is SHA-256 of the body and HMAC-SHA256 of 332 bytes, alone: the signing string of v1 has 227 bytes here, and
// that of RFC 9421 has 409.
func BenchmarkSign(b *testing.B) {
	const secret = "0123456789abcdef0123456789abcdef"
	shared := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, []byte(secret)))
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(b, err)
	signer, verifier := sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, private)),
		sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, public))
	standard := sign.Must(webhook.NewStandardKey(sign.KeyConfig{ID: "webhooks"}, "whsec_"+
		base64.StdEncoding.EncodeToString([]byte(secret))))
	sender := sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "webhooks"}, secret))

	messageSignatures, err := rfc9421.New(rfc9421.Config{})
	require.NoError(b, err)
	webhooks, err := webhook.NewStandard(webhook.StandardConfig{})
	require.NoError(b, err)
	sorted, err := sortedparams.New(sortedparams.Config{})
	require.NoError(b, err)

	signed := map[string]*http.Request{}
	for _, bench := range []struct {
		name             string
		scheme           sign.Scheme
		signer, verifier *sign.Key
		keyed            bool // with an Idempotency-Key, which the others do not sign
		sent             sent
	}{
		{"v1", nil, shared, shared, true, byJSON},
		{"v1-ed25519", nil, signer, verifier, true, byJSON},
		{"rfc9421-hmac", messageSignatures, shared, shared, true, byJSON},
		{"rfc9421-ed25519", messageSignatures, signer, verifier, true, byJSON},
		{"webhooks", webhooks, standard, standard, false, byJSON},
		{"stripe", webhook.Stripe(""), sender, sender, false, byJSON},
		{"sorted-query", sorted, shared, shared, false, bySource["query"]},
		{"sorted-form", sorted, shared, shared, false, bySource["form"]},
		{"sorted-json", sorted, shared, shared, false, bySource["json"]},
	} {
		b.Run(bench.name, func(b *testing.B) {
			require.Len(b, flat, 200)
			target, body := bench.sent.target, bench.sent.body
			r, err := http.NewRequest("POST", "http://api.example.com"+target, bytes.NewReader(body))
			require.NoError(b, err)
			if bench.sent.contentType != "" {
				r.Header.Set("Content-Type", bench.sent.contentType)
			}
			if bench.keyed {
				r.Header.Set("Idempotency-Key", `"k-1"`)
			}
			require.NoError(b, sign.Request(r, bench.signer, sign.RequestOptions{Scheme: bench.scheme}))
			signed[bench.name] = r

			nonces := &anyNonce{}
			now := time.Now() // and so it stays, however long this takes
			v := sign.Must(sign.NewVerifier(sign.Config{
				Keys: sign.Must(sign.NewRing(bench.verifier)), Scheme: bench.scheme, Nonces: nonces,
				NonceQuota: math.MaxInt, MaxNonces: math.MaxInt, // one message is verified as often as there is time for
				Clock: func() time.Time { return now },
			}))
			message := sign.Message{
				Method: "POST", Target: target, Host: "api.example.com", Source: &arrived{r.Header, body},
			}
			require.Contains(b, target+string(body), "bob")
			tampered := message
			tampered.Target = strings.Replace(target, "bob", "eve", 1)
			tampered.Source = &arrived{r.Header, bytes.Replace(body, []byte("bob"), []byte("eve"), 1)}
			_, err = v.Verify(b.Context(), &tampered)
			var refused *sign.Error
			require.ErrorAs(b, err, &refused)
			require.Equal(b, sign.CodeInvalid, refused.Code)
			require.Zero(b, nonces.used)

			m := new(sign.Message) // adapters use theirs again
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				*m = message
				if _, err := v.Verify(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
			require.Equal(b, n, nonces.used)
		})
	}
	for name, check := range map[string]byHand{"v1": v1ByHand, "rfc9421-hmac": rfc9421ByHand} {
		if r := signed[name]; r != nil {
			b.Run(name+"-by-hand", func(b *testing.B) { benchmarkByHand(b, check, r, flat, []byte(secret)) })
		}
	}
	b.Run("floor", func(b *testing.B) {
		base := bytes.Repeat([]byte("x"), 300)
		mac := hmac.New(sha256.New, []byte(secret))
		var sum []byte
		b.ReportAllocs()
		for b.Loop() {
			digest := sha256.Sum256(flat)
			mac.Reset()
			mac.Write(base)
			mac.Write(digest[:])
			sum = mac.Sum(sum[:0])
		}
	})
}
