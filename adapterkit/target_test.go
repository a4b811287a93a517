package adapterkit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
)

// A prefix that was stripped is found, also in front of what should have been escaped.
func TestStrippedPrefixes(t *testing.T) {
	var got adapter.Request
	http.StripPrefix("/v1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		adapterkit.DescribeRoute(r, "", "/files/*", &got)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/files/a%2Fé", nil))
	require.Equal(t, "/v1/files/*", got.Route)
}

// What a router has made of the rest need not be the end of the path.
func TestTailIsNoLongerThanThePath(t *testing.T) {
	_, ok := adapterkit.Tail("/a", "x/a")
	require.False(t, ok)
}
