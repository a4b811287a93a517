package adapterkit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core/adapter"
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

	var r adapterkit.Recorder
	r.Start(t.Context(), w, 100)
	r.Header().Add("Link", "<b>")
	r.Header()["X-Changed"][1] = "3" // in place
	r.Header()["X-Shorter"] = []string{"1"}
	r.Header().Del("X-Removed")
	_, err := r.Write([]byte("x"))
	require.NoError(t, err)
	r.Header().Set("X-Late", "1")
	require.Equal(t, []adapter.Field{
		{Name: "Content-Type", Value: "text/plain"}, // belongs to the body
		{Name: "Link", Value: "<a>"}, {Name: "Link", Value: "<b>"},
		{Name: "X-Changed", Value: "1"}, {Name: "X-Changed", Value: "3"},
		{Name: "X-Shorter", Value: "1"},
	}, r.Capture().Response.Header)
	require.NoError(t, r.Deliver(nil))
	require.Equal(t, http.Header{
		"Content-Encoding": {"gzip"}, "Content-Type": {"text/plain"}, "Link": {"<a>", "<b>"},
		"Vary": {"Origin", "Accept"}, "X-Changed": {"1", "3"}, "X-Shorter": {"1"},
	}, w.Result().Header)
}

func TestRecorderReadFromAfterTheEnd(t *testing.T) {
	w := httptest.NewRecorder()
	var r adapterkit.Recorder
	r.Start(t.Context(), w, 100)
	r.Flush()
	n, err := r.ReadFrom(struct{ io.Reader }{strings.NewReader("in time")})
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	require.True(t, r.Capture().Incomplete)
	n, err = r.ReadFrom(strings.NewReader("late"))
	require.Error(t, err)
	require.Zero(t, n)
	require.Error(t, r.FlushError())
	_, _, err = r.Hijack()
	require.NotErrorIs(t, err, http.ErrNotSupported, "it is not tried")
	require.NoError(t, r.Deliver(nil))
	require.Equal(t, "in time", w.Body.String())
}

// flaky is a response writer that breaks when it is told to, and can or cannot flush.
type flaky struct {
	http.ResponseWriter
	err     error // of all that is written
	flushes bool
}

func (w *flaky) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	return w.ResponseWriter.Write(b)
}

func (w *flaky) FlushError() error {
	if !w.flushes {
		return http.ErrNotSupported
	}
	return w.err
}

// A stream has been cut short if something of it could not go out, for whatever reason: what the handler
// has sent is not what the client has. What has no place in the response, and a large answer that nobody sees before its end,
// are something else; that nobody takes the large answer is kept from the handler, whose run stands.
func TestRecorderTellsThatAStreamWasCut(t *testing.T) {
	broken := errors.New("the write deadline has passed")
	for _, tc := range []struct {
		name   string
		stream bool
		err    error
		want   adapter.Ending
	}{
		{"a stream", true, broken, adapter.Cut},
		{"a large answer", false, broken, adapter.Answered},
		{"more than the Content-Length", true, http.ErrContentLength, adapter.Answered},
		{"a body where none may be", true, http.ErrBodyNotAllowed, adapter.Answered},
		{"a connection that was taken over", true, http.ErrHijacked, adapter.Answered},
		{"nothing", true, nil, adapter.Answered},
	} {
		for how, do := range map[string]func(*adapterkit.Recorder) error{
			"Write":       func(r *adapterkit.Recorder) error { _, err := r.Write([]byte("more")); return err },
			"WriteString": func(r *adapterkit.Recorder) error { _, err := r.WriteString("more"); return err },
			"ReadFrom": func(r *adapterkit.Recorder) error {
				_, err := r.ReadFrom(strings.NewReader("more"))
				return err
			},
			"Flush": (*adapterkit.Recorder).FlushError,
		} {
			if how == "Flush" && !tc.stream {
				continue // which makes a stream of it
			}
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				w := &flaky{httptest.NewRecorder(), nil, true}
				var r adapterkit.Recorder
				r.Start(t.Context(), w, 1)
				_, err := r.WriteString("over the limit")
				require.NoError(t, err)
				if tc.stream {
					require.NoError(t, r.FlushError())
				}
				w.err = tc.err
				if tc.name == "a large answer" {
					require.NoError(t, do(&r))
				} else {
					require.Equal(t, tc.err, do(&r))
				}
				w.err = nil
				_, err = r.WriteString("the end")
				require.NoError(t, err)
				captured := r.Capture()
				require.Equal(t, tc.want, captured.Ending)
				require.True(t, captured.Incomplete)
				require.NoError(t, r.Deliver(nil))
			})
		}
	}
}

// Whoever answers in the handler's place finds the header as it was in front, unless the handler's has gone out; and the handler
// reaches that answer no more.
func TestRecorderUndo(t *testing.T) {
	for name, do := range map[string]func(*adapterkit.Recorder){
		"a header":  func(*adapterkit.Recorder) {},
		"a status":  func(r *adapterkit.Recorder) { r.WriteHeader(201) },
		"an answer": func(r *adapterkit.Recorder) { _, _ = r.WriteString("made") },
		"a stream":  (*adapterkit.Recorder).Flush,
		"too much":  func(r *adapterkit.Recorder) { _, _ = r.WriteString(strings.Repeat("x", 101)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			w.Header()["X-Outer"] = []string{"1", "2"}
			w.Header()["Date"] = nil // somebody keeps the server from setting it
			var r adapterkit.Recorder
			r.Start(t.Context(), w, 100)
			r.Header().Set("X-Outer", "3")
			r.Header().Set("Location", "/orders/1")
			do(&r)
			want, sent := http.Header{"X-Outer": {"1", "2"}, "Date": nil}, w.Body.String()
			if name == "a stream" || name == "too much" { // it has gone out
				want = w.Header().Clone()
				require.Equal(t, []string{"3"}, want["X-Outer"])
			}
			r.Undo()
			require.Equal(t, want, w.Header())
			_, err := r.WriteString("late")
			require.Error(t, err)
			r.WriteHeader(500)
			r.Flush()
			require.Equal(t, name == "a stream", w.Flushed)
			require.Equal(t, sent, w.Body.String())
		})
	}
}

// Trailers have to go out as they come, but make no stream of an answer.
func TestRecorderWithTrailersIsNoStream(t *testing.T) {
	w := &flaky{httptest.NewRecorder(), nil, true}
	var r adapterkit.Recorder
	r.Start(t.Context(), w, 100)
	r.Header().Set("Trailer", "X-Sum")
	r.WriteHeader(201)
	w.err = errors.New("the client has left")
	n, err := r.WriteString("all")
	require.NoError(t, err)
	require.Equal(t, 3, n)
	captured := r.Capture()
	require.True(t, captured.Incomplete)
	require.Equal(t, adapter.Answered, captured.Ending)
	require.NoError(t, r.Deliver(nil))
}

type hijackable struct{ http.ResponseWriter }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// Who has taken the connection over has answered, though the recorder has seen nothing of it.
func TestRecorderThatWasHijackedIsNotEmpty(t *testing.T) {
	var r adapterkit.Recorder
	r.Start(t.Context(), hijackable{httptest.NewRecorder()}, 100)
	_, _, err := r.Hijack()
	require.NoError(t, err)
	captured := r.Capture()
	require.Equal(t, adapter.Answered, captured.Ending)
	require.True(t, captured.Incomplete)
	require.NoError(t, r.Deliver(nil))
}

// A flush that nobody in front can do makes no stream that is cut short; a hijack that nobody can do changes nothing.
func TestRecorderWithoutFlushOrHijack(t *testing.T) {
	w := &flaky{httptest.NewRecorder(), nil, false}
	var r adapterkit.Recorder
	r.Start(t.Context(), w, 100)
	_, err := r.WriteString("all")
	require.NoError(t, err)
	require.ErrorIs(t, r.FlushError(), http.ErrNotSupported)
	require.Equal(t, adapter.Answered, r.Capture().Ending)
	require.NoError(t, r.Deliver(nil))

	r = adapterkit.Recorder{}
	r.Start(t.Context(), w, 100)
	_, _, err = r.Hijack()
	require.ErrorIs(t, err, http.ErrNotSupported)
	require.False(t, r.Passing())
	require.Equal(t, adapter.Empty, r.Capture().Ending)
	require.NoError(t, r.Deliver(nil))
}

// The Content-Length of a 304 is that of the representation, which is not sent (RFC 9110, section 8.6).
func TestRecorderTakesNotModifiedWithALengthForWhole(t *testing.T) {
	w := httptest.NewRecorder()
	var r adapterkit.Recorder
	r.Start(t.Context(), w, 100)
	r.Header().Set("Content-Length", "5")
	r.WriteHeader(http.StatusNotModified)
	require.False(t, r.Capture().Incomplete)
	require.NoError(t, r.Deliver(nil))
	require.Equal(t, http.StatusNotModified, w.Code)
}

// A handler is told that its client has gone once its run has ended: nothing is lost if it breaks off.
func TestRecorderTellsAnEndedRunThatItsWritesFail(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	w := &flaky{httptest.NewRecorder(), errors.New("the client has gone"), true}
	var r adapterkit.Recorder
	r.Start(ctx, w, 1)
	_, err := r.WriteString("over the limit")
	require.NoError(t, err, "the run stands")
	end()
	_, err = r.WriteString("more")
	require.Equal(t, w.err, err)
	require.NoError(t, r.Deliver(nil))
}

// A body that the status does not allow is not sent, and has no size.
func TestRecorderCountsWhatWasTaken(t *testing.T) {
	var r adapterkit.Recorder
	r.Start(t.Context(), &flaky{httptest.NewRecorder(), http.ErrBodyNotAllowed, false}, 100)
	r.WriteHeader(http.StatusNoContent)
	_, err := r.WriteString("not allowed")
	require.ErrorIs(t, err, http.ErrBodyNotAllowed)
	require.Zero(t, r.Size())
	require.NoError(t, r.Deliver(nil))
}

// 101 is not the status of a response: what follows is another protocol.
func TestRecorderOfAnotherProtocol(t *testing.T) {
	var r adapterkit.Recorder
	r.Start(t.Context(), httptest.NewRecorder(), 100)
	r.WriteHeader(http.StatusSwitchingProtocols)
	captured := r.Capture()
	require.Equal(t, http.StatusOK, captured.Response.Status)
	require.True(t, captured.Incomplete)
	require.NoError(t, r.Deliver(nil))
}

// statuses counts what goes to a response writer, which logs all but the first one.
type statuses struct {
	http.ResponseWriter
	sent []int
}

func (w *statuses) WriteHeader(status int) { w.sent = append(w.sent, status) }

// A superfluous status comes to the server, which logs it as usual.
func TestRecorderHandsOnSuperfluousStatuses(t *testing.T) {
	w := &statuses{ResponseWriter: httptest.NewRecorder()}
	var r adapterkit.Recorder
	r.Start(t.Context(), w, 100)
	r.WriteHeader(201)
	r.WriteHeader(500)
	require.Equal(t, 201, r.Capture().Response.Status)
	require.NoError(t, r.Deliver(nil))
	require.Equal(t, []int{201, 500}, w.sent)
}
