package adapterkit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
)

// What is added to a replayed field later reaches no other one.
func TestSetHeaderLeavesNoRoomBehindAField(t *testing.T) {
	h := http.Header{}
	adapterkit.SetHeader(h, &adapter.Response{Status: 200,
		Header: []adapter.Field{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "B", Value: "3"}, {Name: "C", Value: "4"}}})
	h.Add("A", "outer")
	h.Add("B", "outer")
	require.Equal(t, http.Header{"A": {"1", "outer"}, "B": {"2", "3", "outer"}, "C": {"4"}}, h)
}

// A response may have a name in several cases: no line is lost. What the header had before is replaced in any case.
func TestSetHeaderWithNamesInOtherCase(t *testing.T) {
	h := http.Header{"X-A": {"old"}, "X-a": {"old"}, "X-B": {"other"}}
	adapterkit.SetHeader(h, &adapter.Response{Status: 200, Header: []adapter.Field{
		{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}, {Name: "x-a", Value: "3"}, {Name: "X-A", Value: "4"}}})
	require.Equal(t, http.Header{"X-A": {"1", "4"}, "x-a": {"2", "3"}, "X-B": {"other"}}, h)
}

func TestAnswerReplacesFields(t *testing.T) {
	w := httptest.NewRecorder()
	h := w.Header()
	h["x-frame-options"] = []string{"SAMEORIGIN"}
	h["Link"] = []string{"<outer>", "<outer2>"}
	h["Content-Length"] = []string{"99"}
	h["Content-Type"] = []string{"text/outer"}
	h["X-Outer"] = []string{"stays"}
	require.NoError(t, adapterkit.Answer(w, &adapter.Response{Status: 201, Body: []byte("{}"), Header: []adapter.Field{
		{Name: "Link", Value: "<a>"}, {Name: "Link", Value: "<b>"}, {Name: "X-Frame-Options", Value: "DENY"},
	}}))
	require.Equal(t, 201, w.Code)
	require.Equal(t, "{}", w.Body.String())
	require.Equal(t, http.Header{
		"Link": {"<a>", "<b>"}, "X-Frame-Options": {"DENY"}, "X-Outer": {"stays"}, "Content-Type": nil,
	}, w.Header())

	w = httptest.NewRecorder()
	require.NoError(t, adapterkit.Answer(w, &adapter.Response{Status: 204}))
	require.Empty(t, w.Header())
}
