package rfc9421

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

const (
	testNonce = "n-0123456789abcdef"
	testTime  = 1700000000
)

var body200 = `{"order":{"sku":"A-1","qty":2,"note":"` + strings.Repeat("n", 160) + `"}}`

// headerOf is the header of a test's message, to be changed.
func headerOf(m *sign.Message) http.Header { return m.Source.(*fixture.Source).Header }

// testMessage is a request that is not signed.
func testMessage() *sign.Message {
	return &sign.Message{
		Method: "POST", Target: "/transfers/a%2Fb?x=2&x=1", Host: "api.example.com",
		Source: &fixture.Source{Header: http.Header{
			"Content-Type":    {"application/json"},
			"Idempotency-Key": {`"k-1"`},
		}, Body: []byte(body200)},
	}
}

// unread is m before its body has been read.
func unread(m *sign.Message) *sign.Message {
	return &sign.Message{Method: m.Method, Target: m.Target, Host: m.Host, TLS: m.TLS, Source: m.Source}
}

// setBody gives m another body.
func setBody(m *sign.Message, body string) { m.Source.(*fixture.Source).Body = []byte(body) }

func digestOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// strictList are the components that the profile wants of [testMessage].
const strictList = `("@method" "@authority" "@path" "@query" "content-digest" "content-type" "idempotency-key")`

// strictParams are the parameters that it wants.
const strictParams = `;created=1700000000;keyid="demo";nonce="n-0123456789abcdef"`

// signByHand signs m as a peer would that says input in Signature-Input: over the serialised form of
// what it says there. Content-Digest is set if the message has none.
func signByHand(t testing.TB, s *profile, m *sign.Message, key *sign.Key, input string) {
	t.Helper()
	if headerOf(m)["Content-Digest"] == nil {
		headerOf(m).Set("Content-Digest", digestOf(string(m.Source.(*fixture.Source).Body)))
	}
	dictionary, err := httpsfv.UnmarshalDictionary([]string{input})
	require.NoError(t, err)
	label := dictionary.Names()[0]
	member, _ := dictionary.Get(label)
	list := member.(httpsfv.InnerList)
	params, err := httpsfv.Marshal(list)
	require.NoError(t, err)
	var components []string
	for _, item := range list.Items {
		components = append(components, item.Value.(string))
	}
	base, err := s.appendBase(nil, m, components, "")
	require.NoError(t, err)
	signature, err := key.Sign(appendParams(base, params))
	require.NoError(t, err)
	headerOf(m).Set("Signature-Input", input)
	headerOf(m).Set("Signature", label+"=:"+base64.StdEncoding.EncodeToString(signature)+":")
}

// signWith signs m by the scheme, at testTime.
func signWith(t testing.TB, s *profile, m *sign.Message, key *sign.Key, covered ...string) {
	t.Helper()
	sig := &sign.Signature{KeyID: key.ID(), Created: testTime, Nonce: testNonce, Covered: covered}
	added, err := s.Sign(m, sig, key)
	require.NoError(t, err)
	maps.Copy(headerOf(m), added.Header)
}

func newScheme(t testing.TB, o Config) *profile {
	t.Helper()
	return sign.Must(New(o)).(*profile)
}

// verify verifies m at testTime, by a verifier of its own.
func verify(t testing.TB, s *profile, m *sign.Message, keys ...*sign.Key) error {
	t.Helper()
	_, err := fixture.Verifier(sign.Config{Scheme: s, Nonces: fixture.AnyNonce{}}, keys...).Verify(t.Context(), unread(m))
	return err
}
