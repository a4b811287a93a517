package sign_test

import (
	"context"
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
	v := sign.MustVerifier(sign.Config{
		Keys:    sign.MustRing(newHMAC(t, "demo")),
		Observe: func(_ context.Context, got sign.Event) { e = got },
	})
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
