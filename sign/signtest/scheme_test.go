package signtest

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
)

// faulty is a sender's scheme that is right without a flaw. It signs "<time>.<body>".
type faulty struct{ flaw string }

func (f faulty) has(flaw string) bool { return f.flaw == flaw }

func (faulty) Name() string { return "faulty" }

func (f faulty) Parse(m *sign.Message, s *sign.Signature) (err error) {
	if f.has("it panics") && m.Host == "other.test" {
		panic("boom")
	}
	s.KeyID = "acme"
	timestamp, lines := m.Field("X-Time")
	if lines != 1 {
		return sign.CodeMissing
	}
	if s.Created, err = sign.ParseTimestamp(timestamp); err != nil {
		return err
	}
	text, lines := m.Field("X-Sign")
	if lines != 1 {
		return sign.CodeMissing
	}
	for item := range strings.SplitSeq(text, ",") {
		value, err := hex.DecodeString(item)
		if err != nil {
			return sign.CodeMalformed
		}
		s.Values = append(s.Values, value)
	}
	switch {
	case f.has("the nonce stands in a field that is not signed"):
		s.Nonce, _ = m.Field("X-Other")
		s.Nonce += timestamp
	case f.has("the nonce is the text of the signature"):
		s.Nonce = text
	case f.has("the event id is not signed"), f.has("nothing stands between event id and body"):
		s.EventID, _ = m.Field("X-Other")
	}
	return nil
}

func (f faulty) content(m *sign.Message, s *sign.Signature) []byte {
	body, _ := m.Body()
	timestamp := strconv.FormatInt(s.Created, 10)
	switch {
	case f.has("the time is not signed"):
		return body
	case f.has("nothing stands between event id and body"):
		return append([]byte(timestamp+"."+s.EventID), body...)
	case f.has("the body is not signed"):
		return []byte(timestamp)
	}
	return append([]byte(timestamp+"."), body...)
}

func (f faulty) Check(m *sign.Message, s *sign.Signature, key *sign.Key) error {
	content := f.content(m, s)
	for _, value := range s.Values {
		if key.Verify(content, value) || f.has("nothing is compared") {
			if s.Nonce == "" {
				s.Nonce = sign.NonceOf(content)
			}
			return nil
		}
	}
	return sign.ReasonBadSignature
}

func (f faulty) Sign(m *sign.Message, s *sign.Signature, key *sign.Key) (sign.Additions, error) {
	content := f.content(m, s)
	if !f.has("another nonce is signed than is found") {
		s.Nonce = sign.NonceOf(content)
	}
	value, err := key.Sign(content)
	return sign.Additions{Header: http.Header{
		"X-Time": {strconv.FormatInt(s.Created, 10)},
		"X-Sign": {hex.EncodeToString(value)},
	}}, err
}

func (f faulty) SigningString(m *sign.Message, s *sign.Signature, _ *sign.Key) string {
	if f.has("the body is logged") {
		return string(f.content(m, s))
	}
	return strconv.FormatInt(s.Created, 10)
}

func TestRunSchemeFindsFaults(t *testing.T) {
	key := func(fill string) *sign.Key {
		return sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "acme"}, []byte(strings.Repeat(fill, 16))))
	}
	problems := func(flaw string) []string {
		return SchemeHarness{Scheme: faulty{flaw}, Signer: key("ab"), Stranger: key("cd"), Request: func() *http.Request {
			r, err := http.NewRequest("POST", "http://shop.test/hooks", bytes.NewReader([]byte("1{}")))
			require.NoError(t, err)
			return r
		}}.problems()
	}
	require.Empty(t, problems(""))
	for _, flaw := range []string{
		"it panics",
		"the nonce stands in a field that is not signed",
		"the nonce is the text of the signature",
		"the event id is not signed",
		"the time is not signed",
		"nothing stands between event id and body",
		"the body is not signed",
		"nothing is compared",
		"the body is logged",
		"another nonce is signed than is found",
	} {
		assert.NotEmpty(t, problems(flaw), flaw)
	}
}
