package adapterkit

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answering calls a function when it is answered.
type answering struct {
	*httptest.ResponseRecorder
	call func()
}

func (a answering) WriteHeader(status int) {
	a.call()
	a.ResponseRecorder.WriteHeader(status)
}

func TestTimeoutHandlerIsOnTheStack(t *testing.T) {
	inside, answered := make(chan bool, 1), false
	limited := http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside <- isByTimeoutHandler()
		<-r.Context().Done()
	}), time.Millisecond, "")
	w := answering{httptest.NewRecorder(), func() { answered = isByTimeoutHandler() }}
	limited.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 503, w.Code)
	require.True(t, answered)
	require.False(t, <-inside)
}
