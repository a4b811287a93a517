package sign_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/sortedparams"
)

func TestRequest(t *testing.T) {
	key := newHMAC(t, "demo")
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))}))
	r, err := http.NewRequest("POST", "http://api.example.com/a%2Fb?x=%20", strings.NewReader("body"))
	require.NoError(t, err)
	r.Header.Set("Content-Encoding", "identity")
	require.NoError(t, sign.Request(r, key, sign.RequestOptions{}))
	first := r.Header.Clone()
	require.Equal(t, "content-encoding", first.Get("X-Signed-Headers"))
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)

	// Signed again, it is another message, and nothing is left of the first signature.
	r.Header.Del("Content-Encoding")
	r.Header.Set("X-Nonce", "of the caller's")
	require.NoError(t, sign.Request(r, key, sign.RequestOptions{}))
	require.NotEqual(t, first.Get("X-Nonce"), r.Header.Get("X-Nonce"))
	require.NotContains(t, r.Header, "X-Signed-Headers")
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)

	// net/http must not send it again by itself.
	require.Nil(t, r.GetBody)
	require.EqualValues(t, 4, r.ContentLength)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, "body", string(body))
}

func TestRequestFaults(t *testing.T) {
	r := func() *http.Request {
		r, err := http.NewRequest("POST", "http://api.example.com/", strings.NewReader("body"))
		require.NoError(t, err)
		return r
	}
	require.ErrorContains(t, sign.Request(r(), nil, sign.RequestOptions{}), "no key")
	_, verifier := newEd25519(t)
	require.ErrorContains(t, sign.Request(r(), verifier, sign.RequestOptions{}), "no private part")

	broken := r()
	broken.Body = io.NopCloser(iotest.ErrReader(errors.New("disk")))
	require.ErrorContains(t, sign.Request(broken, newHMAC(t, "k"), sign.RequestOptions{}), "disk")

	cut := r()
	cut.ContentLength = 7
	require.ErrorContains(t, sign.Request(cut, newHMAC(t, "k"), sign.RequestOptions{}), "has 4 bytes, but ContentLength is 7")

	international := r()
	international.Host = "bücher.example"
	require.ErrorContains(t, sign.Request(international, newHMAC(t, "k"), sign.RequestOptions{}), "ASCII")

	twice := r()
	twice.Header["Content-Type"] = []string{"a/b", "c/d"}
	require.ErrorIs(t, sign.Request(twice, newHMAC(t, "k"), sign.RequestOptions{}), sign.CodeDuplicateHeader)
	require.ErrorIs(t, sign.Request(r(), newHMAC(t, "k"), sign.RequestOptions{Cover: []string{"Host"}}), sign.ReasonUncovered)
}

// net/http sends names as they stand in the map.
func TestNamesInAnyCase(t *testing.T) {
	key := newHMAC(t, "demo")
	r, err := http.NewRequest("POST", "http://api.example.com/", nil)
	require.NoError(t, err)
	r.Header["idempotency-key"] = []string{"k-1"}
	r.Header["x-nonce"] = []string{"of the caller's"}
	require.NoError(t, sign.Request(r, key, sign.RequestOptions{}))
	require.Equal(t, "idempotency-key", r.Header.Get("X-Signed-Headers"))
	_, err = sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))})).Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k-2")
	require.ErrorIs(t, sign.Request(r, key, sign.RequestOptions{}), sign.CodeDuplicateHeader)
}

// server verifies what comes over the wire, and answers as it is told.
type server struct {
	*httptest.Server
	t        *testing.T
	verifier *sign.Verifier
	answer   func(n int, w http.ResponseWriter, r *http.Request)
	mu       sync.Mutex // guards what follows
	requests []*http.Request
	bodies   []string
	errs     []error
}

func newServer(t *testing.T, key *sign.Key, answer func(n int, w http.ResponseWriter, r *http.Request)) *server {
	s := &server{t: t, answer: answer, verifier: sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))}))}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = s.verifier.Verify(r.Context(), &sign.Message{
				Method: r.Method, Target: r.RequestURI, Host: r.Host, Source: &fixture.Source{Header: r.Header, Body: body},
			})
		}
		s.mu.Lock()
		s.requests, s.bodies, s.errs = append(s.requests, r), append(s.bodies, string(body)), append(s.errs, err)
		n := len(s.requests)
		s.mu.Unlock()
		if s.answer != nil {
			s.answer(n, w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// verified checks that n messages have come, each of them with a good signature of its own.
func (s *server) verified(n int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(s.t, s.requests, n)
	for i, err := range s.errs {
		require.NoError(s.t, err, "message %d", i+1)
	}
}

// forget forgets all but the first n messages.
func (s *server) forget(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.bodies, s.errs = s.requests[:n], s.bodies[:n], s.errs[:n]
}

// What net/http makes of a request on its way is what was signed.
func TestRequestsOverTheWire(t *testing.T) {
	key := newHMAC(t, "demo")
	s := newServer(t, key, nil)
	client := s.Client()
	client.Transport = &sign.Transport{Key: key, Base: client.Transport}
	n := 0
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
		for _, target := range []string{"", "/", "/a%2Fb%61//c/../d/?x=2&x=1&y=%zz;z&+", "/?", "/ä?ö=ü&s=a+b"} {
			for _, body := range []string{"", "body"} {
				r, err := http.NewRequest(method, s.URL+target, nil)
				if err != nil {
					t.Fatal(err)
				}
				if body != "" {
					r.Body = io.NopCloser(strings.NewReader(body)) // of unknown length
				}
				r.Header.Set("Idempotency-Key", `"k"`)
				r.Header.Set("Content-Type", "  text/plain ")
				resp, err := client.Do(r)
				require.NoError(t, err, "%s %s", method, target)
				resp.Body.Close()
				n++
				require.Equal(t, body, s.bodies[n-1])
			}
		}
	}
	s.verified(n)
}

func TestHostOption(t *testing.T) {
	key := newHMAC(t, "demo")
	s := newServer(t, key, nil)
	s.verifier = sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Host: "api.example.com", Hosts: []string{strings.TrimPrefix(s.URL, "http://")}}))
	client := &http.Client{Transport: &sign.Transport{Key: key, Base: s.Client().Transport, Options: sign.RequestOptions{Host: "api.example.com"}}}
	resp, err := client.Get(s.URL)
	require.NoError(t, err)
	resp.Body.Close()
	s.verified(1)
}

// A transport does not change the request that it is given, and closes its body.
func TestTransportLeavesTheRequestAlone(t *testing.T) {
	key := newHMAC(t, "demo")
	s := newServer(t, key, nil)
	body := &closing{Reader: strings.NewReader("body")}
	r, err := http.NewRequest("POST", s.URL+"/a?b", body)
	require.NoError(t, err)
	before := r.Clone(t.Context())
	resp, err := (&sign.Transport{Key: key, Base: s.Client().Transport}).RoundTrip(r)
	require.NoError(t, err)
	resp.Body.Close()
	s.verified(1)
	require.Equal(t, before.Header, r.Header)
	require.Equal(t, before.URL, r.URL)
	require.Equal(t, before.ContentLength, r.ContentLength)
	require.Equal(t, 1, body.closed)

	_, err = (&sign.Transport{}).RoundTrip(r)
	require.ErrorContains(t, err, "no key")
	require.Equal(t, 2, body.closed)
}

// A copy of a request that http.Request.WithContext has made shares its URL. What signing adds to the query
// is for the copy alone.
func TestASharedURLIsNotChanged(t *testing.T) {
	key := newHMAC(t, "demo")
	scheme, err := sortedparams.New(sortedparams.Options{InParams: true})
	require.NoError(t, err)
	r, err := http.NewRequest("GET", "http://pay.test/pay?b=2&a=1", nil)
	require.NoError(t, err)
	copied := r.WithContext(t.Context())
	require.Same(t, r.URL, copied.URL)
	require.NoError(t, sign.Request(copied, key, sign.RequestOptions{Scheme: scheme, Clock: fixedClock}))
	require.Equal(t, "b=2&a=1", r.URL.RawQuery)
	require.Regexp(t, `^b=2&a=1&.*sign=`, copied.URL.RawQuery)
	_, err = sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: scheme, Clock: fixedClock})).Verify(t.Context(), fixture.Message(copied))
	require.NoError(t, err)
}

type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// net/http sends a request with an Idempotency-Key again by itself when a connection that
// was kept alive breaks. It must not: the bytes would be the same.
func TestNetHTTPSendsNothingTwice(t *testing.T) {
	key := newHMAC(t, "demo")
	for _, method := range []string{"GET", "POST"} {
		for _, body := range []string{"", "body"} {
			s := newServer(t, key, func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 2 { // on the connection of the first
					conn, _, err := http.NewResponseController(w).Hijack()
					if err == nil {
						conn.Close()
					}
				}
			})
			send := func(transport http.RoundTripper) error {
				r, err := http.NewRequest(method, s.URL, strings.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("Idempotency-Key", `"k"`)
				if transport == nil {
					require.NoError(t, sign.Request(r, key, sign.RequestOptions{}))
					transport = s.Client().Transport
				}
				resp, err := (&http.Client{Transport: transport}).Do(r)
				if err == nil {
					resp.Body.Close()
				}
				return err
			}
			require.NoError(t, send(nil))
			require.Error(t, send(nil), "%s %q", method, body)
			s.verified(2)

			// The transport sends it again, signed anew.
			s.forget(1)
			require.NoError(t, send(&sign.Transport{Key: key, Base: s.Client().Transport}))
			s.verified(3)
			require.Equal(t, s.requests[1].Header["Idempotency-Key"], s.requests[2].Header["Idempotency-Key"])
			require.NotEqual(t, s.requests[1].Header["X-Nonce"], s.requests[2].Header["X-Nonce"])
			require.Equal(t, body, s.bodies[2])
		}
	}
}

// Who gets a client to follow a redirect must not get a message signed for what they like.
func TestRedirectsElsewhereAreNotSigned(t *testing.T) {
	key := newHMAC(t, "demo")
	elsewhere := newServer(t, key, nil)
	s := newServer(t, key, func(n int, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/transfers?to=evil", http.StatusTemporaryRedirect)
	})
	client := &http.Client{Transport: &sign.Transport{Key: key, Base: s.Client().Transport}}
	resp, err := client.Post(s.URL+"/a", "text/plain", strings.NewReader("body"))
	require.ErrorContains(t, err, "redirect to another host")
	if resp != nil {
		resp.Body.Close()
	}
	s.verified(1)
	elsewhere.verified(0)
}

// The zone of an address belongs to the client's machine.
func TestZones(t *testing.T) {
	key := newHMAC(t, "demo")
	r, err := http.NewRequest("GET", "http://[fe80::1%25eth0]:8080/", nil)
	require.NoError(t, err)
	require.NoError(t, sign.Request(r, key, sign.RequestOptions{}))
	m := fixture.Message(r)
	m.Host = "[fe80::1]:8080" // as net/http sends it
	_, err = sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))})).Verify(t.Context(), m)
	require.NoError(t, err)
}

func TestRedirectsAreSignedAnew(t *testing.T) {
	key := newHMAC(t, "demo")
	s := newServer(t, key, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	})
	client := &http.Client{Transport: &sign.Transport{Key: key, Base: s.Client().Transport}}
	resp, err := client.Post(s.URL+"/a", "text/plain", strings.NewReader("body"))
	require.NoError(t, err)
	resp.Body.Close()
	s.verified(2)
	require.Equal(t, "/elsewhere", s.requests[1].RequestURI)
	require.Equal(t, "body", s.bodies[1])
}

// roundTrips answers attempts one after the other, without a network.
type roundTrips struct {
	answers  []any         // *http.Response, error
	body     io.ReadCloser // of the first answer, unless it is an ordinary one
	requests []*http.Request
	at       []time.Time
}

func (rt *roundTrips) RoundTrip(r *http.Request) (*http.Response, error) {
	rt.requests, rt.at = append(rt.requests, r), append(rt.at, time.Now())
	answer := rt.answers[min(len(rt.requests), len(rt.answers))-1]
	if err, ok := answer.(error); ok {
		return nil, err
	}
	resp := *answer.(*http.Response)
	resp.Body = &closing{Reader: bytes.NewReader(make([]byte, 100))}
	if rt.body != nil && len(rt.requests) == 1 {
		resp.Body = rt.body
	}
	return &resp, nil
}

func answerOf(status int, header ...string) *http.Response {
	h := make(http.Header)
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h}
}
