package jwk

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// web is a server for all hosts under example.com, and the time.
type web struct {
	*httptest.Server
	source  *Source
	port    string
	names   *nameServer
	gets    atomic.Int32
	answer  atomic.Pointer[http.HandlerFunc]
	mu      sync.Mutex
	elapsed time.Duration
}

// newWeb returns a web that answers with handler, and a source of keys that may connect to this machine.
func newWeb(t *testing.T, handler http.HandlerFunc) *web {
	t.Helper()
	w := &web{names: newNameServer(t)}
	w.answer.Store(&handler)
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.gets.Add(1)
		(*w.answer.Load())(rw, r)
	}))
	t.Cleanup(w.Close)
	_, w.port, _ = net.SplitHostPort(w.Listener.Addr().String())
	w.source = NewSource(func(string) bool { return true })
	w.source.public = func(a netip.Addr) bool { return a.IsLoopback() }
	w.source.dialer.Resolver = w.names.resolver()
	roots := x509.NewCertPool()
	roots.AddCert(w.Certificate())
	transport := w.source.client.Transport.(*http.Transport)
	transport.TLSClientConfig = w.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	transport.TLSClientConfig.RootCAs = roots
	w.source.now = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Unix(1700000000, 0).Add(w.elapsed)
	}
	return w
}

// pass lets time pass.
func (w *web) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.elapsed += d
}

func (w *web) at(path string) string { return w.on("example.com", path) }

func (w *web) on(host, path string) string { return "https://" + host + ":" + w.port + path }

// hang makes the paths that contain /slow take until the test has ended.
func (w *web) hang(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	before := *w.answer.Load()
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/slow") {
			<-release
		}
		before(rw, r)
	})
	w.answer.Store(&h)
}

// started has a fetch of each URL started, and waits for none.
func (w *web) started(t *testing.T, url string) error {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.source.KeysAt(ended, url, "k-1")
	return err
}

// settled waits until no fetch runs but those that hang.
func (w *web) settled(t *testing.T, hanging int) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.source.mu.Lock()
		defer w.source.mu.Unlock()
		running := 0
		for _, set := range w.source.sets {
			if set.fetching != nil {
				running++
			}
		}
		return running == hanging
	}, 5*time.Second, time.Millisecond)
}

// keys is what a verifier gets.
func (w *web) keys(t *testing.T, url, id string) ([]*sign.Key, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return w.source.KeysAt(ctx, url, id)
}

// one returns the only key of an id.
func (w *web) one(t *testing.T, url, id string) *sign.Key {
	t.Helper()
	keys, err := w.keys(t, url, id)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	return keys[0]
}

// privateOf is the private key made of seed.
func privateOf(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+seed)), 32)))
}

// jwkOf is its JWK.
func jwkOf(kid string, seed byte) string {
	public := privateOf(seed).Public().(ed25519.PublicKey)
	return `{"kty":"OKP","crv":"Ed25519","kid":"` + kid + `","x":"` + base64URL.EncodeToString(public) + `"}`
}

// serves answers with a JWK Set.
func serves(jwks ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys":[`+strings.Join(jwks, ",")+`]}`) }
}

func (w *web) now(jwks ...string) {
	h := serves(jwks...)
	w.answer.Store(&h)
}

// nameServer answers for every name with the address that it has now.
type nameServer struct {
	conn    net.PacketConn
	address atomic.Pointer[netip.Addr]
	asked   atomic.Int32
}

func newNameServer(t *testing.T) *nameServer {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &nameServer{conn: conn}
	s.set("127.0.0.1")
	done := make(chan struct{})
	t.Cleanup(func() { require.NoError(t, conn.Close()); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(s.answer(buf[:n]), from)
		}
	}()
	return s
}

func (s *nameServer) set(address string) {
	a := netip.MustParseAddr(address)
	s.address.Store(&a)
}

// answer answers a question for an IPv4 address (RFC 1035, section 4); there are no others.
func (s *nameServer) answer(query []byte) []byte {
	end := 12 + strings.IndexByte(string(query[12:]), 0) + 5
	answer := slices.Concat(query[:2], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end])
	if binary.BigEndian.Uint16(query[end-4:]) == 1 {
		s.asked.Add(1)
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, s.address.Load().AsSlice()...)
	}
	return answer
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func TestSource(t *testing.T) {
	w := newWeb(t, serves(jwkOf("k-1", 0), jwkOf("k-2", 1), `{"kty":"EC","crv":"P-384","kid":"k-3"}`))
	key := w.one(t, w.at("/keys"), "k-1")
	require.Equal(t, "k-1", key.ID())
	require.Equal(t, w.at("/keys"), key.Owner())
	require.Same(t, key, w.one(t, "HTTPS://EXAMPLE.com:"+w.port+"/keys", "k-1"))
	require.Same(t, key, w.one(t, w.at("/keys"), key.Thumbprint()))
	keys, err := w.source.At(w.at("/keys")).Keys(t.Context(), "k-2")
	require.NoError(t, err)
	require.Len(t, keys, 1)
	for _, id := range []string{"k-3", "K-1", ""} {
		_, err = w.keys(t, w.at("/keys"), id)
		require.ErrorIs(t, err, sign.ReasonUnknownKey)
	}
	_, err = w.source.Keys(t.Context(), "k-1")
	require.ErrorIs(t, err, sign.ReasonUnknownKey, "of no URL")
	require.EqualValues(t, 1, w.gets.Load())
}

// What the answer may not be: each is a failure, and none of it is read to its end.
func TestSourceRefusesAnswers(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect, with a set": func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Location", "/other")
			rw.WriteHeader(http.StatusFound)
			serves(jwkOf("k-1", 0))(rw, r)
		},
		"another success": func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(http.StatusNonAuthoritativeInfo)
			serves(jwkOf("k-1", 0))(rw, r)
		},
		"an error": func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(http.StatusInternalServerError)
			serves(jwkOf("k-1", 0))(rw, r)
		},
		"compressed": func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			serves(jwkOf("k-1", 0))(rw, r)
		},
		"compressed, and so it is": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(rw)
			fmt.Fprintf(z, `{"keys":[%s]}`, jwkOf("k-1", 0))
			_ = z.Close()
		},
		"a byte too long": func(rw http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(rw, "%-*s", maxBytes+1, `{"keys":[`+jwkOf("k-1", 0)+`]}`)
		},
		"huge": func(rw http.ResponseWriter, _ *http.Request) {
			serves(jwkOf("k-1", 0))(rw, nil) // good, and then blanks
			for err := error(nil); err == nil; {
				_, err = rw.Write(bytes.Repeat([]byte(" "), 32<<10))
			}
		},
		"a huge header": func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X", strings.Repeat("x", 2*maxHeader))
			serves(jwkOf("k-1", 0))(rw, r)
		},
		"slow": func(rw http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"slow from the half": func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprint(rw, `{"keys":[`)
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"no JSON":         func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "<html>") },
		"no JWK Set":      func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, `{"jwks":[]}`) },
		"a thousand keys": serves(slices.Repeat([]string{jwkOf("k-1", 0)}, 1000)...),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" {
					serves(jwkOf("k-1", 0))(rw, r)
					return
				}
				answer(rw, r)
			})
			require.Equal(t, 5*time.Second, w.source.client.Timeout)
			slow := strings.HasPrefix(name, "slow")
			if slow { // the others must not run into it
				w.source.client.Timeout = 100 * time.Millisecond
			}
			_, err := w.keys(t, w.at("/keys"), "k-1")
			require.Error(t, err)
			require.NotErrorIs(t, err, sign.CodeInvalid, "it is a failure, not an unknown key")
			if gets := w.gets.Load(); !slow || gets > 0 { // on a busy machine, its time may pass before it is asked
				require.EqualValues(t, 1, gets)
			}
		})
	}
}

func TestSourceTakesTheLongestAnswer(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(rw, "%-*s", maxBytes, `{"keys":[`+jwkOf("k-1", 0)+`]}`)
	})
	w.one(t, w.at("/keys"), "k-1")
}

// A thousand ids, and a server that fails, cost one fetch a minute.
func TestSourceAsksSeldom(t *testing.T) {
	w := newWeb(t, serves(jwkOf("k-1", 0)))
	for i := range 1000 {
		_, err := w.keys(t, w.at("/keys"), "guess-"+strconv.Itoa(i))
		require.ErrorIs(t, err, sign.ReasonUnknownKey)
	}
	require.EqualValues(t, 1, w.gets.Load())
	w.pass(pause)
	for range 2 {
		_, err := w.keys(t, w.at("/keys"), "guess")
		require.ErrorIs(t, err, sign.ReasonUnknownKey)
	}
	require.EqualValues(t, 2, w.gets.Load())

	broken := http.HandlerFunc(http.NotFound)
	w.answer.Store(&broken)
	for range 10 {
		_, err := w.keys(t, w.at("/broken"), "k-1")
		require.Error(t, err)
	}
	require.EqualValues(t, 3, w.gets.Load())
}

// All who ask at once wait for one fetch, and those who have no time go with nothing, or with what there was.
func TestSourceFetchesOnce(t *testing.T) {
	release := make(chan struct{})
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) { <-release; serves(jwkOf("k-1", 0))(rw, r) })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.source.KeysAt(ended, w.at("/keys"), "k-1")
	require.ErrorIs(t, err, context.Canceled)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			keys, err := w.source.KeysAt(t.Context(), w.at("/keys"), "k-1")
			if err != nil || len(keys) != 1 {
				t.Error(keys, err)
			}
		})
	}
	close(release)
	wg.Wait()
	require.EqualValues(t, 1, w.gets.Load())

	w.pass(freshFor)
	wait := make(chan struct{})
	defer close(wait)
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-wait })
	w.answer.Store(&slow)
	keys, err := w.source.KeysAt(ended, w.at("/keys"), "k-1")
	require.NoError(t, err)
	require.Len(t, keys, 1)
}

// A key is its URL's, and only as long as it is published there.
func TestSourceKeysMove(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			serves(jwkOf("k-1", 0))(rw, r)
			return
		}
		serves(jwkOf("k-1", 1))(rw, r)
	})
	a, b := w.one(t, w.at("/a"), "k-1"), w.one(t, w.at("/b"), "k-1")
	require.NotEqual(t, a.Owner(), b.Owner())
	nonces := make(nonceNames)
	for seed, path := range []string{"/a", "/b"} {
		r := fixture.Sign(t, signtest.NewRequest(t, nil, "http://shop.test/", ""), signer(byte(seed)), sign.RequestOptions{})
		require.NoError(t, fixture.Verify(t, sign.Config{Keys: w.source.At(w.at(path)), Nonces: nonces}, r))
	}
	require.Len(t, nonces, 2, "one owner uses up none of the other's nonces")
	_, err := w.keys(t, w.at("/b"), a.Thumbprint())
	require.ErrorIs(t, err, sign.ReasonUnknownKey, "a's key does not sign for b")

	moved := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			serves(jwkOf("k-2", 2))(rw, r)
			return
		}
		serves(jwkOf("k-1", 0))(rw, r)
	})
	w.answer.Store(&moved)
	w.pass(freshFor)
	_, err = w.keys(t, w.at("/a"), "k-1")
	require.ErrorIs(t, err, sign.ReasonUnknownKey, "it is no longer a's")
	require.Equal(t, w.at("/b"), w.one(t, w.at("/b"), "k-1").Owner(), "but b's")
	require.Equal(t, a.Thumbprint(), w.one(t, w.at("/b"), "k-1").Thumbprint())
	w.now(jwkOf("k-3", 3))
	w.pass(pause)
	require.Equal(t, "k-3", w.one(t, w.at("/a"), "k-3").ID(), "a new key is found before the old ones are stale")
}

// A URL that does not answer keeps its keys for an hour.
func TestSourceOutlivesAnOutage(t *testing.T) {
	w := newWeb(t, serves(jwkOf("k-1", 0)))
	w.one(t, w.at("/keys"), "k-1")
	down := http.HandlerFunc(http.NotFound)
	w.answer.Store(&down)
	w.pass(usableFor - time.Second)
	w.one(t, w.at("/keys"), "k-1")
	require.EqualValues(t, 2, w.gets.Load())
	w.pass(time.Second)
	_, err := w.keys(t, w.at("/keys"), "k-1")
	require.Error(t, err)
	require.NotErrorIs(t, err, sign.CodeInvalid)
}

// A name that changes its address, or has a private one from the start, leads nowhere else.
func TestSourceConnectsToPublicAddresses(t *testing.T) {
	w := newWeb(t, serves(jwkOf("k-1", 0)))
	w.source.public = func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.1") } // the only public one
	w.one(t, w.at("/keys"), "k-1")
	require.EqualValues(t, 1, w.names.asked.Load())
	w.names.set("127.0.0.2") // where the same server listens, or another one
	w.pass(usableFor)
	_, err := w.keys(t, w.at("/keys"), "k-1")
	require.ErrorContains(t, err, "public address")
	require.EqualValues(t, 2, w.names.asked.Load())
	require.EqualValues(t, 1, w.gets.Load())
	_, err = w.keys(t, "https://127.0.0.2:"+w.port+"/keys", "k-1")
	require.ErrorContains(t, err, "public address")
	require.Nil(t, w.source.client.Transport.(*http.Transport).Proxy, "it would connect anywhere")
}

func TestPublicAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "192.0.1.1": true, "2606:4700::1111": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.0.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "0.1.2.3": false, "224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false,
		"192.0.0.8": false, "192.0.2.1": false, "192.88.99.1": false, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.9": false,
		"::1": false, "::": false, "fe80::1": false, "fe80::1%eth0": false, "fd00:ec2::254": false, "fec0::1": false, "ff02::1": false,
		"::ffff:10.0.0.1": false, "::ffff:8.8.8.8": true, "64:ff9b::a00:1": false, "2002:a00:1::": false, "2001::1": false,
		"2001:db8::1": false, "3fff::1": false,
	} {
		s := NewSource(nil)
		err := s.control("tcp", netip.AddrPortFrom(netip.MustParseAddr(text), 443).String(), nil)
		require.Equal(t, want, err == nil, text)
	}
	require.Error(t, NewSource(nil).control("tcp", "example.com:443", nil))
}

// A URL has one spelling. allow sees it; what allow does not accept is never asked.
func TestSourceURLs(t *testing.T) {
	var asked []string
	s := NewSource(func(url string) bool { asked = append(asked, url); return false })
	for _, url := range []string{
		"https://a.test/keys", "https://a.test/keys/", "HTTPS://A.Test:443", "https://a.test:8443/", "https://[2001:DB8::1]/k",
		"https://a.test:0443/", "https://a.test:08443/", "https://[2001:0db8:0::0:1]/k", "https://1.2.3.4/k",
		"http://a.test/", "a.test/keys", "https:a.test", "https:///keys", "https://:443/", "https://user@a.test/",
		"https://a.test/?x", "https://a.test/#x",
		"https://a.test./", "https://a.test:/", "https://a.test/a/../b", "https://a.test/./", "https://a.test/%61",
		"https://a.test\\@b.test/", "https://bücher.test/", "file:///etc/passwd",
		"https://a.test:65536/", "https://a.test:0/", "https://[::ffff:1.2.3.4]/", "https://1.2.3/", "https://1.2.3.04/",
		"https://16909060/", "https://0x1.2.3.0x4/",
		"https://[::1", "https://a.test/a b", "https://a.test/" + strings.Repeat("x", 200), "",
	} {
		_, err := s.KeysAt(t.Context(), url, "k-1")
		require.ErrorIs(t, err, sign.ReasonUnknownKey, url)
	}
	require.Equal(t, []string{"https://a.test/keys", "https://a.test/keys/", "https://a.test/",
		"https://a.test:8443/", "https://[2001:db8::1]/k",
		"https://a.test/", "https://a.test:8443/", "https://[2001:db8::1]/k", "https://1.2.3.4/k"}, asked)
	_, err := NewSource(nil).KeysAt(t.Context(), "https://a.test/keys", "k-1")
	require.ErrorIs(t, err, sign.ReasonUnknownKey)
	require.Empty(t, s.sets)
}

// However many URLs are named, the source remembers some, and fetches from few at a time.
func TestSourceIsBounded(t *testing.T) {
	w := newWeb(t, serves(jwkOf("k-1", 0)))
	for i := range maxSets + 10 {
		w.one(t, w.at("/"+strconv.Itoa(i)), "k-1")
		w.pass(time.Second / 100)
		w.one(t, w.at("/0"), "k-1") // which is asked for all the time
		require.LessOrEqual(t, len(w.source.sets), maxSets)
	}
	require.Contains(t, slices.Collect(maps.Keys(w.source.sets)), w.at("/0"))
	require.NotContains(t, slices.Collect(maps.Keys(w.source.sets)), w.at("/1"))
	broken := http.HandlerFunc(http.NotFound)
	w.answer.Store(&broken)
	for i := range 3 { // what has no keys pushes out no more than one that has
		_, err := w.keys(t, w.at("/broken/"+strconv.Itoa(i)), "k-1")
		require.Error(t, err)
	}
	require.Contains(t, slices.Collect(maps.Keys(w.source.sets)), w.at("/12"))
	require.NotContains(t, slices.Collect(maps.Keys(w.source.sets)), w.at("/broken/1"))
}

// URLs that hang take only the places of their own host, and none of those in which known keys are refreshed.
func TestSourceHangingURLs(t *testing.T) {
	w := newWeb(t, serves(jwkOf("k-1", 0)))
	w.one(t, w.at("/keys"), "k-1")
	w.one(t, w.at("/withdrawn"), "k-1")
	w.hang(t)
	for i := range maxHostFetches + 5 {
		url := w.on("a.example.com", "/slow/"+strconv.Itoa(i))
		err := w.started(t, url)
		require.Equal(t, i >= maxHostFetches, errors.Is(err, errBusy), i)
		require.Equal(t, i < maxHostFetches, w.source.sets[url] != nil, "nothing is forgotten for a URL that cannot be asked")
	}
	w.one(t, w.on("b.example.com", "/keys"), "k-1") // whom nobody knew
	for i := range maxFetches - maxHostFetches {
		require.ErrorIs(t, w.started(t, w.on("c"+strconv.Itoa(i)+".example.com", "/slow")), context.Canceled)
	}
	require.ErrorIs(t, w.started(t, w.on("d.example.com", "/keys")), errBusy)
	w.settled(t, maxFetches)
	gone := http.HandlerFunc(serves())
	w.answer.Store(&gone)
	w.pass(freshFor)
	_, err := w.keys(t, w.at("/withdrawn"), "k-1")
	require.ErrorIs(t, err, sign.ReasonUnknownKey, "a withdrawn key is refused meanwhile")
}

// Known keys are fetched again behind the answer, and while their URL hangs nobody waits for it.
func TestSourceRefreshesBehind(t *testing.T) {
	w := newWeb(t, serves(jwkOf("k-1", 0), jwkOf("k-2", 1)))
	w.one(t, w.at("/slow"), "k-2")
	w.now(jwkOf("k-1", 0))
	w.pass(refreshAfter)
	w.one(t, w.at("/slow"), "k-2")
	w.settled(t, 0)
	_, err := w.keys(t, w.at("/slow"), "k-2")
	require.ErrorIs(t, err, sign.ReasonUnknownKey)

	w.hang(t)
	w.source.client.Timeout = time.Millisecond
	w.pass(refreshAfter)
	w.one(t, w.at("/slow"), "k-1")
	w.settled(t, 0)
	w.source.client.Timeout = time.Minute
	w.pass(freshFor)
	gets := w.gets.Load()
	for range 3 {
		keys, err := w.source.KeysAt(t.Context(), w.at("/slow"), "k-1") // it would wait for a minute
		require.NoError(t, err)
		require.Len(t, keys, 1)
	}
	w.settled(t, 1)
	require.LessOrEqual(t, w.gets.Load(), gets+1)
}

// A URL is asked once in a minute also if it was forgotten meanwhile. The host that has most URLs makes room first.
func TestSourceForgets(t *testing.T) {
	w := newWeb(t, serves(jwkOf("k-1", 0)))
	w.one(t, w.on("b.example.com", "/"), "k-1")
	for i := range maxSets {
		w.pass(time.Millisecond)
		w.one(t, w.at("/"+strconv.Itoa(i)), "k-1")
	}
	gets := w.gets.Load()
	w.one(t, w.on("b.example.com", "/"), "k-1")
	_, err := w.keys(t, w.at("/0"), "k-1")
	require.ErrorIs(t, err, errBusy)
	require.Equal(t, gets, w.gets.Load())
	w.pass(pause)
	w.one(t, w.at("/0"), "k-1")
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	require.LessOrEqual(t, len(w.source.sets), maxSets)
	require.LessOrEqual(t, len(w.source.forgotten), 1, "after a minute that is forgotten, too")
}

// signer is the key k-1 made of seed, with its private part.
func signer(seed byte) *sign.Key {
	return sign.Must(sign.NewKey(sign.KeyConfig{ID: "k-1"}, privateOf(seed)))
}

// validAt is what a verifier says at a time to a message of k, whose private key is that of seed 0.
func validAt(t *testing.T, k *sign.Key, at time.Time) error {
	clock := func() time.Time { return at }
	key := sign.Must(sign.NewKey(sign.KeyConfig{ID: k.ID()}, privateOf(0)))
	r := fixture.Sign(t, signtest.NewRequest(t, nil, "http://shop.test/", ""), key, sign.RequestOptions{Clock: clock})
	return fixture.Verify(t, sign.Config{Clock: clock}, r, k)
}

// A set's keys, as far as they can verify.
func TestParseSet(t *testing.T) {
	good := jwkOf("k-1", 0)
	with := func(members string) string { return strings.TrimSuffix(good, "}") + "," + members + "}" }
	for jwk, want := range map[string]bool{
		good:                         true,
		with(`"alg":"EdDSA"`):        true,
		with(`"alg":"ed25519"`):      true,
		with(`"alg":"ES256"`):        false,
		with(`"use":"sig"`):          true,
		with(`"use":"enc"`):          false,
		with(`"key_ops":["verify"]`): true,
		with(`"key_ops":["sign"]`):   false,
		with(`"key_ops":[]`):         false,
		with(`"use":"sig","key_ops":["verify"],"adcp_use":"request-signing"`):         true,
		with(`"key_ops":["verify"],"adcp_use":"request-signing"`):                     false,
		with(`"use":"sig","adcp_use":"request-signing"`):                              false,
		strings.Replace(good, "k-1", "k 1", 1):                                        false,
		strings.Replace(good, "Ed25519", "X25519", 1):                                 false,
		`{"kty":"oct","kid":"k-1","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}`: false,
		// of small order
		`{"kty":"OKP","crv":"Ed25519","kid":"k-1","x":"` + strings.Repeat("A", 43) + `"}`: false,
		// not on the curve
		`{"kty":"EC","crv":"P-256","kid":"k-1","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}`: false,
		`{"kty":"RSA","kid":"k-1","n":"AQAB","e":"AQAB"}`:                                                                    false,
		// 12,000 bits
		`{"kty":"RSA","kid":"k-1","n":"` + strings.Repeat("_", 2000) + `","e":"AQAB"}`:  false,
		`{"kty":"RSA","kid":"k-1","n":"` + strings.Repeat("_", 1365) + `w","e":"AQAB"}`: true, // 8192 bits
		`7`: false,
	} {
		keys, err := ParseSet([]byte(`{"keys":[`+jwk+`]}`), "")
		require.NoError(t, err, jwk)
		require.Equal(t, want, len(keys) == 1 && keys[0].Algorithm() != "", jwk)
		if !want && strings.Contains(jwk, "adcp_use") { // it can be told from an unknown key, and is none
			require.Len(t, keys, 1, jwk)
			require.False(t, keys[0].Verify(nil, nil))
			require.Equal(t, []string{"k-1", "k-1", ""}, []string{keys[0].ID(), keys[0].Owner(), keys[0].Purpose()})
		}
	}
	keys := sign.Must(ParseSet([]byte(`{"keys":[`+
		with(`"kid":null,"nbf":1700000000,"exp":1700000010,"use":"sig","key_ops":["verify"],"adcp_use":"a"`)+`]}`), "partner"))
	require.Equal(t, "partner", keys[0].Owner())
	require.Equal(t, "a", keys[0].Purpose())
	require.ErrorIs(t, validAt(t, keys[0], time.Unix(1699999999, 0)), sign.ReasonKeyNotYetValid)
	require.ErrorIs(t, validAt(t, keys[0], time.Unix(1700000010, 0)), sign.ReasonKeyExpired)
	keys = sign.Must(ParseSet([]byte(`{"keys":[`+with(`"nbf":1700000000000,"exp":1700000010000`)+`]}`), ""))
	require.ErrorIs(t, validAt(t, keys[0], time.Unix(1699999999, 0)), sign.ReasonKeyNotYetValid, "in milliseconds")
	require.NoError(t, validAt(t, keys[0], time.Unix(1700000000, 0)))
	require.ErrorIs(t, validAt(t, keys[0], time.Unix(1700000010, 0)), sign.ReasonKeyExpired)
	require.Len(t, sign.Must(ParseSet([]byte(`{"ucp":{},"signing_keys":[`+good+`]}`), "")), 1)
	require.Len(t, sign.Must(ParseSet([]byte(`{"keys":[`+strings.Repeat(good+",", maxKeys-1)+good+`]}`), "")), maxKeys)
	for _, text := range []string{"", "[]", "{}", `{"keys":{}}`, `{"keys":[` + strings.Repeat(good+",", maxKeys) + good + `]}`} {
		_, err := ParseSet([]byte(text), "")
		require.ErrorAs(t, err, new(*sign.ConfigError), text)
	}
}

// Keys whose private parts are published are left out.
func TestSourceHasNoTestKeys(t *testing.T) {
	w := newWeb(t, serves(`{"kty":"OKP","crv":"Ed25519","kid":"k-1","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}`))
	_, err := w.keys(t, w.at("/keys"), "k-1")
	require.ErrorIs(t, err, sign.ReasonUnknownKey)
}

// nonceNames are the keys whose nonces were used.
type nonceNames map[string]bool

func (n nonceNames) Use(_ context.Context, keyID, _ string, _ time.Duration) (bool, error) {
	n[keyID] = true
	return true, nil
}

func (nonceNames) Limits() (int, bool) { return 0, true }
