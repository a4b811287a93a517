package echo5idem_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/adapter"
)

// An Echo within another one belongs to a host only if the server's Echo chooses by hosts.
func TestAnEchoWithinAnEcho(t *testing.T) {
	var got adapter.Request
	inner, tenant, plain := echo.New(), echo.New(), echo.New()
	inner.POST("/orders", func(*echo.Context) error { return nil }, noting(t, &got))
	tenant.Any("/*", echo.WrapHandler(inner))
	plain.Any("/*", echo.WrapHandler(inner))
	for _, c := range []struct {
		server *echo.Echo
		want   string
	}{
		{inner, "/orders"},
		{plain, "/orders"},
		{echo.NewVirtualHostHandler(map[string]*echo.Echo{"a.test": inner}), "a.test/orders"},
		{echo.NewVirtualHostHandler(map[string]*echo.Echo{"a.test": tenant}), "a.test/orders"},
	} {
		r := httptest.NewRequest("POST", "http://a.test/orders", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{Handler: c.server}))
		c.server.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, c.want, got.Route)
	}
}

// A mux in front of the Echo that chooses by host makes two routes of one.
func TestAHostNamedFurtherOutCounts(t *testing.T) {
	var got adapter.Request
	e, mux := echo.New(), http.NewServeMux()
	e.POST("/orders", func(*echo.Context) error { return nil }, noting(t, &got))
	mux.Handle("a.test/", e)
	mux.Handle("/", e)
	for host, want := range map[string]string{"a.test": "a.test/orders", "other.test": "/orders"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "http://"+host+"/orders", nil))
		require.Equal(t, want, got.Route)
	}
}
