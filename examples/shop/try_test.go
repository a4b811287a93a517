package shop

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Strangers can't fill the memory.
func TestTrialsAreBounded(t *testing.T) {
	all := &trials{byID: map[string]*trial{}}
	status := func(id string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/try/log", nil)
		r.Header.Set("X-Try-Trial", id)
		all.serve((*trial).log)(w, r)
		return w.Code
	}
	id := func(i int) string { return fmt.Sprintf("%032x", i) }
	for i := range 3 * maxTrials {
		require.Equal(t, 200, status(id(i)))
	}
	require.Len(t, all.byID, maxTrials)
	require.Len(t, all.ids, maxTrials)
	require.Contains(t, all.byID, id(3*maxTrials-1))
	for range maxRequests {
		require.Equal(t, 200, status("0123456789abcdef0123456789abcdef"))
	}
	require.Equal(t, 429, status("0123456789abcdef0123456789abcdef"))
	for _, none := range []string{"", "0123456789ABCDEF0123456789ABCDEF", id(0) + "0"} {
		require.Equal(t, 400, status(none))
	}
	require.Len(t, all.byID, maxTrials)
}
