package signtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// noon is the time of signer and verifier.
var noon = time.Unix(1700000000, 0)

// SchemeHarness is a scheme, and what [RunScheme] needs to test it.
type SchemeHarness struct {
	// Scheme is the scheme to test. Nil: [sign.NewV1].
	Scheme sign.Scheme
	// Signer signs, and Verifier verifies. A nil Verifier is the Signer.
	Signer, Verifier *sign.Key
	// Stranger is a key of the same kind and id that the verifier does not have.
	Stranger *sign.Key
	// Request returns a request to be signed: always the same one, with a body.
	Request func() *http.Request
	// Parameters is true if the scheme signs the parameters in the body, not its bytes.
	Parameters bool
	// Cover is [sign.RequestOptions].Cover.
	Cover []string
}

// RunScheme tests that a scheme keeps the rules of [sign.Scheme]. It changes a signed message in some thousand ways: each byte
// of each header field and of the body; fields that are missing, doubled or new; items of lists that are missing or doubled;
// bytes that move between the end of a field and the beginning of the body; another target. The verifier must refuse each of
// these, or accept it as the same message: with the same body, time, nonce and event id. Nothing may panic.
//
// So it finds a nonce, a timestamp or an event id that can be changed without the key. It does not test what else a scheme leaves
// unsigned.
func RunScheme(t *testing.T, h SchemeHarness) {
	t.Helper()
	for _, problem := range h.problems() {
		t.Error(problem)
	}
}

// problems are what is wrong with the scheme.
func (h SchemeHarness) problems() (found []string) {
	var p problems
	defer func() {
		if r := recover(); r != nil {
			p.add("panic: %v", r)
		}
		found = p
	}()
	if h.Verifier == nil {
		h.Verifier = h.Signer
	}
	if h.Scheme == nil {
		h.Scheme = sign.Must(sign.NewV1(sign.V1Config{}))
	}
	verifier := h.verifier(&p, fixture.AnyNonce{})
	first, ok := h.sign(&p, h.Signer, noon)
	if !ok {
		return p
	}
	original, err := verifier.Verify(context.Background(), first.message())
	if err != nil {
		p.add("a signed message is refused: %v", err)
		return p
	}
	noTimestamp := original.Time.IsZero()
	switch {
	case !noTimestamp && !original.Time.Equal(noon):
		p.add("the time is %v, but %v was signed", original.Time, noon)
	case original.Nonce != "" && original.Nonce != first.nonce:
		p.add("the nonce is %q, but Sign has left %q", original.Nonce, first.nonce)
	}
	for _, c := range first.changes() {
		changed, err := verifier.Verify(context.Background(), c.message())
		switch _, typed := errors.AsType[*sign.Error](err); {
		case err != nil && !typed:
			p.add("%s: the error is no *sign.Error: %v", c.what, err)
		case err == nil && (!changed.Time.Equal(original.Time) || changed.Nonce != original.Nonce || changed.EventID != original.EventID):
			p.add("%s: it passes for another message: %+v in place of %+v", c.what, changed, original)
		case err == nil && !h.Parameters && !bytes.Equal(c.body, first.body):
			p.add("%s: it passes with another body", c.what)
		}
	}
	h.checkTime(&p, original, noTimestamp)
	h.checkSecrets(&p)
	return p
}

// checkTime looks at messages of other times, at a replay, and at a stranger's.
func (h SchemeHarness) checkTime(p *problems, original sign.Verified, noTimestamp bool) {
	verify := func(v *sign.Verifier, m draft) (sign.Verified, error) {
		return v.Verify(context.Background(), m.message())
	}
	verifier := h.verifier(p, new(sign.MemoryNonces))
	for _, c := range []struct {
		what string
		key  *sign.Key
		at   time.Time
		want sign.Code // "": it is verified
	}{
		{"the first delivery", h.Signer, noon, ""},
		{"the same event, signed a second later", h.Signer, noon.Add(time.Second), ""},
		{"a message that is too old", h.Signer, noon.Add(-2 * time.Hour), sign.CodeExpired},
		{"a message of the future", h.Signer, noon.Add(2 * time.Hour), sign.CodeNotYetValid},
		{"a stranger's message", h.Stranger, noon.Add(2 * time.Second), sign.CodeInvalid},
	} {
		m, ok := h.sign(p, c.key, c.at)
		if !ok {
			return
		}
		if noTimestamp && c.key == h.Signer {
			c.want = "" // the time is not in it
		}
		got, err := verify(verifier, m)
		switch {
		case c.want != "":
			if !errors.Is(err, c.want) {
				p.add("%s: %v, but it should be %s", c.what, err, c.want)
			}
			continue
		case err != nil:
			p.add("%s is refused: %v", c.what, err)
			continue
		case got.EventID != original.EventID:
			p.add("%s has the event id %q in place of %q", c.what, got.EventID, original.EventID)
		}
		again, err := verify(verifier, m)
		switch {
		case original.Nonce != "" && !errors.Is(err, sign.CodeReplayed):
			p.add("%s, sent again: %v, but it should be %s", c.what, err, sign.CodeReplayed)
		case original.Nonce == "" && again.EventID != got.EventID:
			p.add("%s, sent again, has become another one: %v, %v", c.what, again, err)
		}
	}
}

// checkSecrets looks for the body in what goes to logs.
func (h SchemeHarness) checkSecrets(p *problems) {
	const secret = `{"card":"4111111111111111"}`
	var logged strings.Builder
	r := h.Request()
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(secret)), int64(len(secret))
	m, ok := h.signRequest(p, r, h.Signer, noon, func(_ *http.Request, text string) { logged.WriteString(text) })
	if !ok {
		return
	}
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		Keys: sign.Must(sign.NewRing(h.Verifier)), Scheme: h.Scheme, GuardedByKey: true, Clock: func() time.Time { return noon },
		Observe: func(_ context.Context, e sign.Event) { fmt.Fprint(&logged, e.SigningString(), e.Err) },
	}))
	if _, err := verifier.Verify(context.Background(), m.message()); err != nil {
		p.add("a signed message is refused: %v", err)
	}
	if strings.Contains(logged.String(), "4111111111111111") {
		p.add("the signing string has the body in it")
	}
}

func (h SchemeHarness) verifier(p *problems, nonces sign.NonceStore) *sign.Verifier {
	return sign.Must(sign.NewVerifier(sign.Config{
		Keys: sign.Must(sign.NewRing(h.Verifier)), Scheme: h.Scheme, GuardedByKey: true, Nonces: nonces,
		Clock: func() time.Time { return noon },
		Observe: func(_ context.Context, e sign.Event) {
			_ = e.SigningString() // which must not panic, whatever was sent
			if e.Scheme == "" {
				p.add("the scheme has no name")
			}
		},
	}))
}

func (h SchemeHarness) sign(p *problems, key *sign.Key, at time.Time) (draft, bool) {
	return h.signRequest(p, h.Request(), key, at, nil)
}

func (h SchemeHarness) signRequest(p *problems, r *http.Request, key *sign.Key, at time.Time,
	observe func(*http.Request, string)) (draft, bool) {
	r.Header.Set("X-Other", "o-1")
	scheme := &nonceSpy{Scheme: h.Scheme}
	err := sign.Request(r, key,
		sign.RequestOptions{Scheme: scheme, Cover: h.Cover, Clock: func() time.Time { return at }, Observe: observe})
	if err != nil {
		p.add("the request is not signed: %v", err)
		return draft{}, false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.add("the body can't be read: %v", err)
		return draft{}, false
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	return draft{method: r.Method, target: r.URL.RequestURI(), host: host, header: r.Header, body: body, nonce: scheme.nonce}, true
}

// nonceSpy keeps the nonce that Sign has left.
type nonceSpy struct {
	sign.Scheme
	nonce string
}

func (s *nonceSpy) Sign(m *sign.Message, sig *sign.Signature, key *sign.Key) (sign.Additions, error) {
	added, err := s.Scheme.Sign(m, sig, key)
	s.nonce = sig.Nonce
	return added, err
}

// problems are collected, so that the suite can be tested itself.
type problems []string

// maxProblems is how many are told: one flaw shows in many changes.
const maxProblems = 20

func (p *problems) add(format string, args ...any) {
	if len(*p) < maxProblems {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

// draft is a message as a server gets it.
type draft struct {
	what                 string // has been changed
	method, target, host string
	header               http.Header
	body                 []byte
	unreadable           bool   // the body
	nonce                string // as the signer knows it
}

func (d draft) message() *sign.Message {
	source := &fixture.Source{Header: d.header, Body: bytes.Clone(d.body)}
	if d.unreadable {
		source.Err = io.ErrUnexpectedEOF
	}
	return &sign.Message{Method: d.method, Target: d.target, Host: d.host, Source: source}
}

// with returns a changed copy.
func (d draft) with(what string, change func(*draft)) draft {
	d.what, d.header, d.body = what, d.header.Clone(), slices.Clone(d.body)
	change(&d)
	return d
}

// changes are d in all its changed forms.
func (d draft) changes() (all []draft) {
	add := func(what string, change func(*draft)) { all = append(all, d.with(what, change)) }
	set := func(name, value string) func(*draft) { return func(d *draft) { d.header.Set(name, value) } }

	add("nothing", func(*draft) {})
	add("another method", func(d *draft) { d.method = "PUT" })
	add("another host", func(d *draft) { d.host = "other.test" })
	add("another target", func(d *draft) { d.target = "/other" })
	add("more of a query", func(d *draft) {
		if strings.Contains(d.target, "?") {
			d.target += "&x=1"
		} else {
			d.target += "?x=1"
		}
	})
	add("a new field", set("X-New", "1"))
	add("an Idempotency-Key", set("Idempotency-Key", "k-2"))
	add("a Content-Encoding", set("Content-Encoding", "gzip"))
	for name, values := range d.header {
		value := values[0]
		add("no "+name, func(d *draft) { d.header.Del(name) })
		add("an empty "+name, set(name, ""))
		add("two lines of "+name, func(d *draft) { d.header.Add(name, value) })
		add("another line behind "+name, func(d *draft) { d.header.Add(name, "1700000000") })
		for _, separator := range []string{",", ";", " ", "&"} {
			items := strings.Split(value, separator)
			for i := range items {
				if len(items) > 1 {
					add(fmt.Sprintf("%s without item %d", name, i),
						set(name, strings.Join(slices.Delete(slices.Clone(items), i, i+1), separator)))
					add(fmt.Sprintf("%s with item %d twice", name, i), set(name, value+separator+items[i]))
				}
			}
		}
		for i := range value {
			for _, c := range others(value[i]) {
				add(fmt.Sprintf("byte %d of %s", i, name), set(name, value[:i]+string(c)+value[i+1:]))
			}
			add(fmt.Sprintf("%s with a byte more at %d", name, i), set(name, value[:i]+"0"+value[i:]))
			add(fmt.Sprintf("%s without byte %d", name, i), set(name, value[:i]+value[i+1:]))
			tail := value[i:]
			for _, between := range []string{"", ".", ":", "\n"} {
				add(fmt.Sprintf("%s from byte %d moved into the body", name, i), func(d *draft) {
					d.header.Set(name, strings.TrimSuffix(value[:i], between))
					d.body = append([]byte(tail+between), d.body...)
				})
			}
		}
		for i := 1; i <= min(len(d.body), 16); i++ {
			head := string(d.body[:i])
			for _, between := range []string{"", ".", ":"} {
				add(fmt.Sprintf("%d bytes of the body moved to %s", i, name), func(d *draft) {
					d.header.Set(name, value+between+head)
					d.body = d.body[i:]
				})
			}
		}
	}
	for i := range d.body {
		add(fmt.Sprintf("byte %d of the body", i), func(d *draft) { d.body[i] ^= 1 })
		add(fmt.Sprintf("the body from byte %d cut off", i), func(d *draft) { d.body = d.body[:i] })
	}
	add("a longer body", func(d *draft) { d.body = append(d.body, ' ') })
	add("a body with something in front", func(d *draft) { d.body = slices.Concat([]byte(" "), d.body) })
	add("a body that can't be read", func(d *draft) { d.body, d.unreadable = nil, true })
	return all
}

// others returns bytes to put in place of c.
func others(c byte) []byte {
	switch {
	case '0' <= c && c <= '9':
		return []byte{'0' + (c-'0'+1)%10, 'a', '-'}
	case 'a' <= c && c <= 'z':
		return []byte{'a' + (c-'a'+1)%26, c - 'a' + 'A', '0'}
	case 'A' <= c && c <= 'Z':
		return []byte{'A' + (c-'A'+1)%26, c - 'A' + 'a', '0'}
	}
	return []byte{'x', ' ', ','}
}
