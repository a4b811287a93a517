package sign_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// Both sides show the same string, and nothing secret is in it.
func TestObserve(t *testing.T) {
	var event fixture.Observer
	v := fixture.Verifier(sign.Config{Observe: event.Observe}, signtest.Demo)
	var theirs string
	r := signtest.NewRequest(t, nil, "http://api.example.com/a?b=c&access_token=t-0815&d", "a body that is nobody's business",
		"Authorization", "Bearer of a token", "Content-Type", "text/plain")
	fixture.Sign(t, r, signtest.Demo, sign.RequestOptions{
		Cover: []string{"Authorization", "Content-Type"}, Observe: func(_ *http.Request, s string) { theirs = s },
	})
	_, err := v.Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
	require.Nil(t, event.Err)
	require.Equal(t, "demo", event.KeyID)
	require.Equal(t, theirs, event.Signed)
	require.Contains(t, theirs, "\nauthorization:[redacted]\ncontent-type:text/plain")
	require.Contains(t, theirs, "\nb=c&access_token=[redacted]&d\n")
	require.Len(t, strings.Split(theirs, "\n"), 12)
	for _, hidden := range []string{"Bearer", "nobody", "t-0815", designSecret, r.Header.Get("X-Signature")[3:]} {
		require.NotContains(t, theirs, hidden)
	}
	require.Empty(t, event.SigningString(), "the message of an event that is kept belongs to another request")
	require.Empty(t, sign.Event{}.SigningString())

	// Where the messages differ, the strings say where.
	m := fixture.Message(r)
	m.Target = "/a?b=d&access_token=t-0816&d"
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ReasonBadSignature)
	require.Equal(t, strings.Replace(theirs, "b=c", "b=d", 1), event.Signed)
	require.EqualError(t, event.Err, "sign: invalid (bad_signature)")

	// A body that was not read is not read for this.
	m = fixture.Message(r)
	fixture.SourceOf(m).Header.Set("X-Timestamp", "1")
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeExpired)
	require.Contains(t, event.Signed, "\n[the body was not read]\n")
	require.Zero(t, fixture.SourceOf(m).Reads)

	// A message that was not parsed has no string, and what is no key id is not named.
	for _, id := range []string{"", strings.Repeat("x\t", 1000)} {
		fixture.SourceOf(m).Header.Set("X-Key-Id", id)
		_, err = v.Verify(t.Context(), m)
		require.Error(t, err)
		require.Empty(t, event.Signed)
		require.Empty(t, event.KeyID)
	}
}

// The request line counts as the header does, and what observers see of a message has a limit.
func TestLongMessages(t *testing.T) {
	var event fixture.Observer
	v := fixture.Verifier(sign.Config{Observe: event.Observe}, signtest.Demo)
	m := signedMessage(t, signtest.Demo)
	_, bytes := m.Source.HeaderSize()
	m.Target = "/?" + strings.Repeat("x", 32<<10-bytes-len(m.Method)-len(m.Host)-2)
	_, err := v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ReasonBadSignature, "it is just short enough")
	require.Len(t, event.Signed, 4<<10+len("[cut off]"))
	require.True(t, strings.HasPrefix(event.Signed, "v1\ndemo\nPOST\n") && strings.HasSuffix(event.Signed, "x[cut off]"), event.Signed)
	for _, part := range []*string{&m.Target, &m.Method, &m.Host} {
		before := *part
		*part += "x"
		_, err = v.Verify(t.Context(), m)
		require.ErrorIs(t, err, sign.CodeMalformed)
		*part = before
	}

	m = signedMessage(t, signtest.Demo)
	lines, _ := m.Source.HeaderSize()
	fixture.SourceOf(m).Header["X-Padding"] = make([]string, 100-lines)
	_, err = v.Verify(t.Context(), m)
	require.NoError(t, err)
	fixture.SourceOf(m).Header["X-Padding"] = make([]string, 101-lines)
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeMalformed)
}

// Anybody can send what is told to people, so each part of it has a limit, and nothing of the query is in it.
func TestEventsAreShort(t *testing.T) {
	long := strings.Repeat("x", 30<<10)
	for _, c := range []struct {
		change func(*sign.Message)
		path   string
	}{
		{func(m *sign.Message) { m.Target = "/hooks?token=1" }, "/hooks"},
		{func(m *sign.Message) { m.Target = "" }, "/"},
		{func(m *sign.Message) { m.Target = "http://api.example.com/a?x" }, "/a"},
		{func(m *sign.Message) { m.Target = "/" + long }, "/" + long[:255]},
		{func(m *sign.Message) { m.Host = long }, "/transfers/a%2Fb"},
		{func(m *sign.Message) { m.Method = long }, "/transfers/a%2Fb"},
		{func(m *sign.Message) { fixture.SourceOf(m).Header.Set("X-Key-Id", long) }, "/transfers/a%2Fb"},
		{func(m *sign.Message) {
			fixture.SourceOf(m).Header.Set("X-Signed-Headers", "content-type;idempotency-key;"+long)
		}, "/transfers/a%2Fb"},
	} {
		var event fixture.Observer
		v := fixture.Verifier(sign.Config{Hosts: []string{"api.example.com"}, Observe: event.Observe}, signtest.Demo)
		m := signedMessage(t, signtest.Demo)
		c.change(m)
		_, err := v.Verify(t.Context(), m)
		require.Error(t, err)
		require.Equal(t, c.path, event.Path)
		require.LessOrEqual(t, max(len(event.KeyID), len(event.Method), len(event.Path)), 256)
		require.LessOrEqual(t, len(err.Error()), 600)
		require.LessOrEqual(t, len(event.Err.Detail), 512)
	}
}
