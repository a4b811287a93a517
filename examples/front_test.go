package examples_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"golang.org/x/net/http2"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/httpidem"
)

// adapterkit/origin.go knows the bodies of these libraries by the names of their types. A guard sees behind them that somebody
// has read from the body.
func TestBodiesOfLibrariesInFront(t *testing.T) {
	guard := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(core.Policy{})
	reached := httpidem.New(guard)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was reached") }))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, 2))
		assert.NoError(t, err)
		reached.ServeHTTP(w, r)
	})
	for name, server := range map[string]*httptest.Server{
		"otelhttp":               httptest.NewUnstartedServer(otelhttp.NewHandler(handler, "")),
		"golang.org/x/net/http2": httptest.NewUnstartedServer(handler),
	} {
		t.Run(name, func(t *testing.T) {
			if name != "otelhttp" {
				//lint:ignore SA1019 a service may still do so
				require.NoError(t, http2.ConfigureServer(server.Config, nil))
				server.TLS, server.EnableHTTP2 = server.Config.TLSConfig, true
			}
			server.StartTLS()
			defer server.Close()
			resp, err := server.Client().Post(server.URL, "application/json", strings.NewReader(`{"a":1}`))
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, server.EnableHTTP2, resp.ProtoMajor == 2)
			require.Equal(t, string(codes.BodyConsumed), resp.Header.Get(core.RefusedHeader))
		})
	}
}
