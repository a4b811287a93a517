package sign

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/sign/internal/form"
)

// RequestOptions are the options of [Request] and [Transport]. The zero value signs with [NewV1].
type RequestOptions struct {
	// Scheme is how to sign. Nil: [NewV1] with its standard names.
	Scheme Scheme

	// Cover are the names of header fields to sign if the request has them, in addition to those that the scheme always signs
	// (Idempotency-Key, Content-Type, Content-Encoding). Nil: Content-Type and Content-Encoding.
	Cover []string

	// Host is the public host of the verifier ([Config].Host), if it differs from the request's host. Empty: the request's
	// host.
	Host string

	// Lifetime is how long the request is valid, in schemes that can express it (RFC 9421). It is cut to whole seconds. The
	// verifier's window limits it. Zero: the verifier's window.
	Lifetime time.Duration

	// Clock returns the current time. Nil: [time.Now].
	Clock func() time.Time

	// Observe is called with each signing string, without secrets and bodies. Compare it with the verifier's
	// ([Event.SigningString]). With a [Transport] calls may be concurrent. Nil: no calls.
	Observe func(r *http.Request, signingString string)
}

var defaultCover = []string{"Content-Type", "Content-Encoding"}

// Request signs r with key, at the current time and with a new nonce. Before the call, set the Idempotency-Key
// and everything else to sign. Request reads the body into memory, and replaces the header fields of an earlier signature.
//
// Send the request once: if it is sent again, it is refused as replayed. net/http itself repeats a request with an Idempotency-Key when
// its connection breaks. To prevent that, Request sets r.GetBody to nil and r.Body to one that cannot be rewound. [Transport] signs each
// attempt again.
func Request(r *http.Request, key *Key, o RequestOptions) error {
	body, err := readAll(r)
	if err != nil {
		return err
	}
	_, err = signRequest(r, body, key, o)
	return err
}

var (
	errNoKey = errors.New("sign: there is no key to sign with")
	errNoURL = errors.New("sign: the request has no URL")
)

// signRequest reports whether the scheme has derived the nonce from what is signed.
func signRequest(r *http.Request, body []byte, key *Key, o RequestOptions) (derived bool, err error) {
	if key == nil {
		return false, errNoKey
	}
	scheme, cover, now := o.Scheme, o.Cover, time.Now
	if scheme == nil {
		scheme = standardV1
	}
	if cover == nil {
		cover = defaultCover
	}
	if o.Clock != nil {
		now = o.Clock
	}
	if r.URL == nil {
		return false, errNoURL
	}
	m := &Message{
		Method: cmp.Or(r.Method, http.MethodGet), Target: r.URL.RequestURI(), Host: cmp.Or(r.Host, r.URL.Host),
		TLS: r.URL.Scheme == "https", Source: &outgoing{r.Header, body}, limit: int64(len(body)), host: o.Host, outgoing: true,
	}
	if !form.IsAuthority(m.Authority()) {
		return false, Errorf(CodeMalformed, "%q is not a host; international names must be in their ASCII form", m.Authority())
	}
	nonce := newNonce()
	s := &Signature{KeyID: key.id, Created: now().Unix(), Nonce: nonce, Covered: slices.Clone(cover)}
	if o.Lifetime > 0 {
		s.Expires = s.Created + int64(o.Lifetime/time.Second)
	}
	added, err := scheme.Sign(m, s, key)
	if err != nil {
		return false, err
	}
	if o.Observe != nil {
		o.Observe(r, scheme.SigningString(m, s, key))
	}
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	for name, values := range added.Header {
		for other := range r.Header {
			if strings.EqualFold(other, name) {
				delete(r.Header, other) // of an earlier signature, in any case
			}
		}
		if len(values) > 0 && values[0] != "" {
			r.Header.Set(name, values[0])
		}
	}
	if added.Query != "" {
		if r.URL.RawQuery != "" {
			added.Query = r.URL.RawQuery + "&" + added.Query
		}
		u := *r.URL // r may be a clone that shares its URL
		u.RawQuery = added.Query
		r.URL = &u
	}
	if added.Body != nil {
		body = added.Body
	}
	setBody(r, body)
	return s.Nonce != nonce, nil
}

// withoutZone removes the zone from an IPv6 address, as net/http does: it means something to this machine only (RFC 6874).
func withoutZone(host string) string {
	begin, end := strings.IndexByte(host, '%'), strings.LastIndexByte(host, ']')
	if !strings.HasPrefix(host, "[") || begin < 0 || end < begin {
		return host
	}
	return host[:begin] + host[end:]
}

// newNonce returns 32 hexadecimal digits: 128 random bits.
func newNonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// outgoing is the [Source] of a request before it is sent.
type outgoing struct {
	header http.Header
	body   []byte
}

// Values finds fields in any case: net/http sends them as they are in the map.
func (o *outgoing) Values(name string) []string {
	values := o.header[name]
	for other, more := range o.header {
		if other != name && strings.EqualFold(other, name) {
			values = append(slices.Clip(values), more...)
		}
	}
	return values
}

func (o *outgoing) HeaderSize() (lines, bytes int) { return headerSize(o.header) }

func (o *outgoing) ReadBody(int64) ([]byte, error) { return o.body, nil }

func (o *outgoing) RemoteAddr() string { return "" }

func headerSize(h http.Header) (lines, bytes int) {
	for name, values := range h {
		lines += len(values)
		for _, v := range values {
			bytes += len(name) + len(v)
		}
	}
	return lines, bytes
}

// readAll reads and closes the body of a request before it is sent.
func readAll(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return nil, err
	}
	if r.ContentLength > 0 && int64(len(body)) != r.ContentLength {
		return nil, fmt.Errorf("sign: the body has %d bytes, but ContentLength is %d", len(body), r.ContentLength)
	}
	return body, nil
}

// setBody gives r a body that net/http sends at most once. It would send http.NoBody, and a body with a GetBody, again.
func setBody(r *http.Request, body []byte) {
	r.Body = onceBody{bytes.NewReader(body)}
	r.ContentLength = int64(len(body))
	r.GetBody = nil
}

type onceBody struct{ *bytes.Reader }

func (onceBody) Close() error { return nil }
