package sign_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
)

// acme is the scheme of a sender called Acme. Acme-Signature is the HMAC-SHA256 of "<Acme-Time>.<body>" in hexadecimal.
type acme struct{}

func (acme) Name() string { return "acme" }

// Parse reads the header only. Nothing is verified yet.
func (acme) Parse(m *sign.Message, s *sign.Signature) error {
	s.KeyID = "acme" // messages name no key
	text, err := m.Required("Acme-Time")
	if err != nil {
		return err
	}
	if s.Created, err = sign.ParseTimestamp(text); err != nil {
		return err
	}
	if text, err = m.Required("Acme-Signature"); err != nil {
		return err
	}
	value, err := hex.DecodeString(text)
	if err != nil {
		return sign.Errorf(sign.CodeMalformed, "Acme-Signature: %w", err)
	}
	s.Values = append(s.Values, value)
	for _, name := range []string{"Content-Encoding", "Idempotency-Key"} { // they are not signed
		if _, lines := m.Field(name); lines > 0 {
			return sign.Errorf(sign.ReasonUncovered, "%s", name)
		}
	}
	return nil
}

// Check has the body. The nonce comes from all that is signed, and nothing else.
func (a acme) Check(m *sign.Message, s *sign.Signature, key *sign.Key) error {
	signed, err := a.content(m, s)
	if err != nil {
		return err
	}
	if !key.Verify(signed, s.Values[0]) {
		return sign.ReasonBadSignature
	}
	s.Nonce = sign.NonceOf(signed)
	return nil
}

func (a acme) Sign(m *sign.Message, s *sign.Signature, key *sign.Key) (sign.Additions, error) {
	signed, err := a.content(m, s)
	if err != nil {
		return sign.Additions{}, err
	}
	s.Nonce = sign.NonceOf(signed)
	value, err := key.Sign(signed)
	return sign.Additions{Header: http.Header{
		"Acme-Time":      {strconv.FormatInt(s.Created, 10)},
		"Acme-Signature": {hex.EncodeToString(value)},
	}}, err
}

func (acme) SigningString(_ *sign.Message, s *sign.Signature, _ *sign.Key) string {
	return strconv.FormatInt(s.Created, 10) + ".[body]"
}

func (acme) content(m *sign.Message, s *sign.Signature) ([]byte, error) {
	body, err := m.Body()
	return append([]byte(strconv.FormatInt(s.Created, 10)+"."), body...), err
}

// A scheme of your own. Test it with the suite:
//
//	signtest.RunScheme(t, signtest.SchemeHarness{Scheme: acme{}, Signer: key, Stranger: other, Request: request})
func ExampleScheme() {
	key := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "acme"}, []byte("0123456789abcdef0123456789abcdef")))
	now := func() time.Time { return time.Unix(1700000000, 0) }
	verifier := sign.Must(sign.NewVerifier(sign.Config{Scheme: acme{}, Keys: sign.Must(sign.NewRing(key)), Clock: now}))

	r := httptest.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(`{"paid":5}`))
	if err := sign.Request(r, key, sign.RequestOptions{Scheme: acme{}, Clock: now}); err != nil {
		fmt.Println(err)
	}
	for range 2 {
		verified, err := verifier.Verify(r.Context(), messageOf(r))
		fmt.Println(verified.KeyID, err)
	}
	// Output:
	// acme <nil>
	//  sign: replayed
}
