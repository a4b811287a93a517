package httpidem_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
)

func TestRecorderLeavesOutWhatWasThere(t *testing.T) {
	w := httptest.NewRecorder()
	h := w.Header()
	h["Content-Encoding"] = []string{"gzip"}
	h["Content-Type"] = []string{"text/plain"}
	h["Link"] = []string{"<a>"}
	h["Vary"] = []string{"Origin", "Accept"}
	h["X-Changed"] = []string{"1", "2"}
	h["X-Removed"] = []string{"1"}
	h["X-Shorter"] = []string{"1", "2"}

	var r httpidem.Recorder
	r.Start(w, 100)
	r.Header().Add("Link", "<b>")
	r.Header()["X-Changed"][1] = "3" // in place
	r.Header()["X-Shorter"] = []string{"1"}
	r.Header().Del("X-Removed")
	_, err := r.Write([]byte("x"))
	require.NoError(t, err)
	r.Header().Set("X-Late", "1")
	require.Equal(t, []core.Field{
		{Name: "Content-Type", Value: "text/plain"}, // belongs to the body
		{Name: "Link", Value: "<a>"}, {Name: "Link", Value: "<b>"},
		{Name: "X-Changed", Value: "1"}, {Name: "X-Changed", Value: "3"},
		{Name: "X-Shorter", Value: "1"},
	}, r.Capture(http.StatusOK).Response.Header)
	require.NoError(t, r.Deliver())
	require.Equal(t, http.Header{
		"Content-Encoding": {"gzip"}, "Content-Type": {"text/plain"}, "Link": {"<a>", "<b>"},
		"Vary": {"Origin", "Accept"}, "X-Changed": {"1", "3"}, "X-Shorter": {"1"},
	}, w.Result().Header)
}

func TestRecorderReadFromAfterTheEnd(t *testing.T) {
	w := httptest.NewRecorder()
	var r httpidem.Recorder
	r.Start(w, 100)
	r.Flush()
	n, err := r.ReadFrom(struct{ io.Reader }{strings.NewReader("in time")})
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	require.True(t, r.Capture(http.StatusOK).Incomplete)
	n, err = r.ReadFrom(strings.NewReader("late"))
	require.Error(t, err)
	require.Zero(t, n)
	require.NoError(t, r.Deliver())
	require.Equal(t, "in time", w.Body.String())
}
