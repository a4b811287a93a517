package adapterkit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
)

// What is added to a replayed field later reaches no other one.
func TestSetHeaderLeavesNoRoomBehindAField(t *testing.T) {
	h := http.Header{}
	adapterkit.SetHeader(h, &adapter.Response{Status: 200, Header: []adapter.Field{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "B", Value: "3"}, {Name: "C", Value: "4"}}})
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
