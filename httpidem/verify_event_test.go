package httpidem_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// The observer is told who has sent what is refused, and where to.
func TestEventsNameThePeer(t *testing.T) {
	events := make(chan sign.Event, 1)
	v := sign.Must(sign.NewVerifier(sign.Config{
		Keys:    sign.Must(sign.NewRing(signtest.Demo)),
		Observe: func(_ context.Context, e sign.Event) { events <- e },
	}))
	s := server(t, httpidem.Verify(v)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	r := signed(t, s, signtest.Forger, "/hooks/a%2Fb?token=1", "{}")
	require.Equal(t, 401, send(t, s, r).status)
	e := <-events
	assert.ErrorIs(t, e.Err, sign.CodeInvalid)
	assert.Equal(t, "POST", e.Method)
	assert.Equal(t, "/hooks/a%2Fb", e.Path, "a query may hold what nobody should see")
	assert.True(t, strings.HasPrefix(e.RemoteAddr, "127.0.0.1:"), e.RemoteAddr)
}
