package adapterkit

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each line counts, with its name, and so does Host, which net/http takes out of the header.
func TestHeaderSize(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = "host:80"
	r.Header["A"] = []string{"1", "22", ""}
	r.Header["Bc"] = []string{"333"}
	var m message
	m.r = r
	lines, bytes := m.HeaderSize()
	require.Equal(t, 5, lines)
	require.Equal(t, len("Hosthost:80")+len("A1A22A")+len("Bc333"), bytes)

	r.Host = ""
	lines, bytes = m.HeaderSize()
	require.Equal(t, 4, lines)
	require.Equal(t, len("A1A22A")+len("Bc333"), bytes)
}
