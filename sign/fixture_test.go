package sign_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// designSecret is the secret of the documented examples.
const designSecret = "0123456789abcdef0123456789abcdef"

const goodURL = "http://api.example.com/transfers/a%2Fb?x=2&x=1"

var (
	body200    = `{"order":{"sku":"A-1","qty":2,"note":"` + strings.Repeat("n", 160) + `"}}`
	now        = fixture.Now
	standardV1 = sign.Must(sign.NewV1(sign.V1Config{}))
)

// messageOf is what a server makes of a request that a client sends. ExampleScheme calls it.
func messageOf(r *http.Request) *sign.Message { return fixture.Message(r) }

// signedRequest is a request of 200 bytes with an Idempotency-Key, signed by key.
func signedRequest(tb testing.TB, key *sign.Key, o sign.RequestOptions) *http.Request {
	tb.Helper()
	return fixture.Sign(tb, signtest.NewRequest(tb, nil, goodURL, body200, "Idempotency-Key", `"k-1"`), key, o)
}

// signedMessage is what a server makes of that request.
func signedMessage(tb testing.TB, key *sign.Key) *sign.Message {
	tb.Helper()
	return fixture.Message(signedRequest(tb, key, sign.RequestOptions{}))
}

func newHMACWith(o sign.KeyConfig) *sign.Key {
	return sign.Must(sign.NewHMACKey(o, []byte(rand.Text()+rand.Text())))
}

// stub is a scheme with something in front of its Parse, and something behind its Check.
type stub struct {
	sign.Scheme
	parse func(*sign.Signature) error
	check func(*sign.Signature, error) error
}

func (s stub) Parse(m *sign.Message, sig *sign.Signature) error {
	if s.parse != nil {
		if err := s.parse(sig); err != nil {
			return err
		}
	}
	return s.Scheme.Parse(m, sig)
}

func (s stub) Check(m *sign.Message, sig *sign.Signature, key *sign.Key) error {
	err := s.Scheme.Check(m, sig, key)
	if s.check != nil {
		return s.check(sig, err)
	}
	return err
}
