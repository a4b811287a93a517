package idemclient_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// Each try is signed anew, and there are no more than the outer transport makes. What it passes on is retried by the inner one.
func TestOnSignTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verifier := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(signtest.Demo)), Clock: time.Now}))
		verify := func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			_, err = verifier.Verify(t.Context(), &sign.Message{Method: r.Method, Target: r.URL.RequestURI(), Host: r.URL.Host, TLS: true,
				Source: source{r, body}})
			require.NoError(t, err)
			return nil, errReset
		}
		base := &script{answers: []any{verify}}
		signing := &sign.Transport{Key: signtest.Demo, Base: base}
		transport := &idemclient.Transport{Hosts: hosts, Base: signing, MaxTries: 4}
		for _, c := range []struct {
			method, url string
			sent        int
		}{
			{"POST", "https://api.test/a", 4},
			{"GET", "https://api.test/a", 4},
			{"POST", "https://other.test/a", 1},
			{"GET", "https://other.test/a", 3},
			{"PUT", "https://other.test/a", 3},
		} {
			base.sent = nil
			_, err := transport.RoundTrip(request(t.Context(), t, c.method, c.url, "bytes"))
			require.ErrorIs(t, err, errReset)
			require.Len(t, base.sent, c.sent, c)
		}

		// What can't be signed is not tried again.
		base.sent = nil
		_, err := (&idemclient.Transport{Hosts: hosts, Base: &sign.Transport{Base: base}}).RoundTrip(request(t.Context(), t,
			"POST", "https://api.test/a", "bytes"))
		require.ErrorContains(t, err, "no key to sign with")
		require.ErrorContains(t, err, "would not help; sent 0 times")
		require.Empty(t, base.sent)

		base.answers = []any{answer(307, "Location", "https://eu.test/b")} // where the inner one does not follow
		client := &http.Client{Transport: &idemclient.Transport{Hosts: []string{"api.test", "eu.test"}, Base: signing}}
		_, err = client.Do(request(t.Context(), t, "POST", "https://api.test/a", "bytes"))
		require.ErrorContains(t, err, "would not help; sent 0 times: sign: a redirect")

		// Nonces that are made of seconds are a second apart.
		base.sent, base.answers = nil, []any{errReset, answer(201)}
		signing.Options.Scheme = seconds{}
		began := time.Now()
		_, err = transport.RoundTrip(request(t.Context(), t, "POST", "https://api.test/a", "bytes"))
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// Of two transports, one tries again.
func TestOnAnother(t *testing.T) {
	base := &script{answers: []any{errReset}}
	inner := &idemclient.Transport{Hosts: hosts, Base: base, MaxWait: time.Millisecond}
	for _, method := range []string{"GET", "POST"} {
		base.sent = nil
		_, err := (&idemclient.Transport{Hosts: hosts, Base: inner, MaxTries: 3, MaxWait: time.Millisecond}).RoundTrip(
			request(t.Context(), t, method, "https://api.test/a", "bytes"))
		require.ErrorContains(t, err, "sent 3 times")
		require.Len(t, base.sent, 3)
	}
	base.sent = nil
	_, err := (&idemclient.Transport{Base: inner}).RoundTrip(request(t.Context(), t, "POST", "https://api.test/a", "bytes"))
	require.ErrorContains(t, err, "sent 5 times")

	// What a try asks for on its way is a request of its own.
	base.sent, base.answers = nil, []any{errReset, answer(200)}
	asks := roundTrip(func(r *http.Request) (*http.Response, error) {
		return inner.RoundTrip(request(r.Context(), t, "POST", "https://api.test/token", ""))
	})
	_, err = (&idemclient.Transport{Hosts: hosts, Base: asks}).RoundTrip(request(t.Context(), t, "POST", "https://api.test/a", "bytes"))
	require.NoError(t, err)
	require.Len(t, base.sent, 2)
	require.NotEmpty(t, base.sent[0].key)
}

// seconds is a scheme whose nonces tell seconds apart.
type seconds struct{ sign.Scheme }

func (seconds) Sign(_ *sign.Message, sig *sign.Signature, _ *sign.Key) (sign.Additions, error) {
	sig.Nonce = sign.NonceOf([]byte{byte(sig.Created)})
	return sign.Additions{}, nil
}

// source is the header and the body of a message.
type source struct {
	r    *http.Request
	body []byte
}

func (s source) Values(name string) []string { return s.r.Header[name] }

func (s source) HeaderSize() (lines, bytes int) { return len(s.r.Header), 1000 }

func (s source) RemoteAddr() string { return "" }

func (s source) ReadBody(int64) ([]byte, error) { return s.body, nil }
