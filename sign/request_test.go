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
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/sortedparams"
)

func TestRequest(t *testing.T) {
	r := signtest.NewRequest(t, nil, "http://api.example.com/a%2Fb?x=%20", "body", "Content-Encoding", "identity")
	fixture.Sign(t, r, signtest.Demo, sign.RequestOptions{})
	first := r.Header.Clone()
	require.Equal(t, "content-encoding;content-type", first.Get("X-Signed-Headers"))
	require.NoError(t, fixture.Verify(t, sign.Config{}, r, signtest.Demo))

	// Signed again, it is another message, and nothing is left of the first signature, in whatever case.
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Type")
	r.Header["idempotency-key"] = []string{"k-1"} // net/http sends names as they are in the map
	r.Header["x-nonce"] = []string{"of the caller's"}
	fixture.Sign(t, r, signtest.Demo, sign.RequestOptions{})
	require.NotEqual(t, first.Get("X-Nonce"), r.Header.Get("X-Nonce"))
	require.NotContains(t, r.Header, "x-nonce")
	require.Equal(t, "idempotency-key", r.Header.Get("X-Signed-Headers"))
	require.NoError(t, fixture.Verify(t, sign.Config{}, r, signtest.Demo))
	// net/http must not send it again by itself.
	require.Nil(t, r.GetBody)
	require.EqualValues(t, 4, r.ContentLength)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, "body", string(body))
	r.Body, r.ContentLength = http.NoBody, 0
	r.Header.Set("Idempotency-Key", "k-2")
	require.ErrorIs(t, sign.Request(r, signtest.Demo, sign.RequestOptions{}), sign.CodeDuplicateHeader)

	// The zone of an address belongs to the client's machine: net/http does not send it.
	r = fixture.Sign(t, signtest.NewRequest(t, nil, "http://[fe80::1%25eth0]:8080/", ""), signtest.Demo, sign.RequestOptions{})
	m := fixture.Message(r)
	m.Host = "[fe80::1]:8080"
	_, err = fixture.Verifier(sign.Config{}, signtest.Demo).Verify(t.Context(), m)
	require.NoError(t, err)
}

func TestRequestErrors(t *testing.T) {
	_, verifier := fixture.Pair("ed", fixture.Private().Ed25519)
	for want, c := range map[string]struct {
		key    *sign.Key
		change func(*http.Request)
		cover  []string
	}{
		"no key":          {nil, func(*http.Request) {}, nil},
		"no private part": {verifier, func(*http.Request) {}, nil},
		"disk": {signtest.Demo,
			func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(errors.New("disk"))) }, nil},
		"has 4 bytes, but ContentLength is 7": {signtest.Demo, func(r *http.Request) { r.ContentLength = 7 }, nil},
		"ASCII":                               {signtest.Demo, func(r *http.Request) { r.Host = "bücher.example" }, nil},
		"duplicate_header": {signtest.Demo,
			func(r *http.Request) { r.Header["Content-Type"] = []string{"a/b", "c/d"} }, nil},
		"control":   {signtest.Demo, func(r *http.Request) { r.Header.Set("Content-Type", "a\nb") }, nil},
		"uncovered": {signtest.Demo, func(*http.Request) {}, []string{"Host"}},
		"no URL":    {signtest.Demo, func(r *http.Request) { r.URL = nil }, nil},
	} {
		r := signtest.NewRequest(t, nil, goodURL, "body")
		c.change(r)
		require.ErrorContains(t, sign.Request(r, c.key, sign.RequestOptions{Cover: c.cover}), want)
	}
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

func newServer(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *server {
	s := &server{t: t, answer: answer, verifier: signtest.NewVerifier()}
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

// What net/http makes of a request on its way is what was signed.
func TestRequestsOverTheWire(t *testing.T) {
	s := newServer(t, nil)
	client := s.Client()
	base := client.Transport
	client.Transport = &sign.Transport{Key: signtest.Demo, Base: base}
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

	// A public host that is not the one in the URL.
	s.verifier = signtest.NewVerifier(func(c *sign.Config) {
		c.Host, c.Hosts = "api.example.com", []string{strings.TrimPrefix(s.URL, "http://")}
	})
	client.Transport = &sign.Transport{Key: signtest.Demo, Base: base, Options: sign.RequestOptions{Host: "api.example.com"}}
	resp, err := client.Get(s.URL)
	require.NoError(t, err)
	resp.Body.Close()
	s.verified(n + 1)
}

// A transport does not change the request that it is given, and closes its body.
func TestTransportLeavesTheRequestAlone(t *testing.T) {
	s := newServer(t, nil)
	body := &closing{Reader: strings.NewReader("body")}
	r, err := http.NewRequest("POST", s.URL+"/a?b", body)
	require.NoError(t, err)
	before := r.Clone(t.Context())
	resp, err := (&sign.Transport{Key: signtest.Demo, Base: s.Client().Transport}).RoundTrip(r)
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

// A copy of a request that http.Request.WithContext has made shares its URL. What signing adds to the query is for the copy
// alone.
func TestASharedURLIsNotChanged(t *testing.T) {
	o := sign.RequestOptions{Scheme: sign.Must(sortedparams.New(sortedparams.Config{InParams: true}))}
	for query, want := range map[string]string{"": `^key_id=.*sign=|^timestamp=.*sign=`, "b=2&a=1": `^b=2&a=1&.*sign=`} {
		r := signtest.NewRequest(t, nil, "http://pay.test/pay?"+query, "")
		copied := r.WithContext(t.Context())
		require.Same(t, r.URL, copied.URL)
		fixture.Sign(t, copied, signtest.Demo, o)
		require.Equal(t, query, r.URL.RawQuery)
		require.Regexp(t, want, copied.URL.RawQuery)
		require.NoError(t, fixture.Verify(t, sign.Config{Scheme: o.Scheme}, copied, signtest.Demo))
	}
}

type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// net/http sends a request with an Idempotency-Key again by itself when a connection that
// was kept alive breaks. It must not: the bytes would be the same.
func TestNetHTTPSendsNothingTwice(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for _, body := range []string{"", "body"} {
			s := newServer(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 2 || n == 3 { // the second on the connection of the first
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
					require.NoError(t, sign.Request(r, signtest.Demo, sign.RequestOptions{}))
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
			require.NoError(t, send(&sign.Transport{Key: signtest.Demo, Base: s.Client().Transport}))
			s.verified(4)
			require.Equal(t, s.requests[2].Header["Idempotency-Key"], s.requests[3].Header["Idempotency-Key"])
			require.NotEqual(t, s.requests[2].Header["X-Nonce"], s.requests[3].Header["X-Nonce"])
			require.Equal(t, body, s.bodies[3])
		}
	}
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
