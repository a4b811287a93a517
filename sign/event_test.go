package sign_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// An event holds no more of a path than what tells routes apart, and nothing of the query.
func TestEventPaths(t *testing.T) {
	var e sign.Event
	v := sign.Must(sign.NewVerifier(sign.Config{
		Keys:    sign.Must(sign.NewRing(newHMAC(t, "demo"))),
		Observe: func(_ context.Context, got sign.Event) { e = got },
	}))
	for target, path := range map[string]string{
		"/hooks?token=1":                 "/hooks",
		"":                               "/",
		"http://api.example.com/a?x":     "/a",
		"/" + strings.Repeat("x", 1<<12): "/" + strings.Repeat("x", 255),
	} {
		_, err := v.Verify(t.Context(), &sign.Message{Method: "POST", Target: target, Host: "h", Source: &fixture.Source{Header: http.Header{}}})
		require.Error(t, err)
		require.Equal(t, path, e.Path)
		require.Empty(t, e.RemoteAddr, "the source does not tell")
	}
}

// Anybody can send what is told to people, so it has a bound.
func TestEventsAreShort(t *testing.T) {
	key, long := newHMAC(t, "demo"), strings.Repeat("x", 30<<10)
	for what, change := range map[string]func(*http.Request){
		"host":   func(r *http.Request) { r.Host = long },
		"method": func(r *http.Request) { r.Method = long },
		"key id": func(r *http.Request) { r.Header.Set("X-Key-Id", long) },
		"field":  func(r *http.Request) { r.Header.Set("X-Signed-Headers", "content-type;idempotency-key;"+long) },
	} {
		var e sign.Event
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Hosts: []string{"api.example.com"}, Observe: func(_ context.Context, got sign.Event) { e = got }}))
		r := signedRequest(t, key, sign.RequestOptions{})
		change(r)
		_, err := v.Verify(t.Context(), fixture.Message(r))
		require.Error(t, err, what)
		require.Less(t, len(fmt.Sprint(e.KeyID, e.Method, e.Path, e.Err, err)), 2<<10, what)
	}
}
