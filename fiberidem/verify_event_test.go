package fiberidem_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// The observer is told who has sent what is refused, and where to. It may keep that.
func TestEventsNameThePeer(t *testing.T) {
	events := make(chan sign.Event, 2)
	app := newApp()
	app.Post("/*", fiberidem.Verify(signtest.NewVerifier(func(c *sign.Config) {
		c.Observe = func(_ context.Context, e sign.Event) { events <- e }
	})))
	s := serve(t, app)
	for _, path := range []string{"/hooks/a%2Fb?token=1", "/other/a%2Fb"} {
		assert.Equal(t, "invalid", s.Do(s.Signed(signtest.Forger, path, "{}")).Code())
	}
	for _, path := range []string{"/hooks/a%2Fb", "/other/a%2Fb"} {
		e := <-events
		assert.ErrorIs(t, e.Err, sign.CodeInvalid)
		assert.Equal(t, "POST", e.Method)
		assert.Equal(t, path, e.Path)
		assert.True(t, strings.HasPrefix(e.RemoteAddr, "127.0.0.1:"), e.RemoteAddr)
	}
}
