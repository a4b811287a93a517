package core

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResultRoundTrip(t *testing.T) {
	for name, r := range map[string]Response{
		"empty":   {Status: 204},
		"headers": {Status: 201, Header: []Field{{"Content-Type", "text/plain"}, {"Link", "<a>"}, {"Link", "<b>"}, {"X-Empty", ""}}, Body: []byte("x")},
		"binary":  {Status: 200, Body: []byte{0, 1, 2, 255, 254}},
		"large":   {Status: 599, Header: []Field{{"X", strings.Repeat("v", 70000)}}, Body: make([]byte, 1<<20)},
	} {
		var got Response
		require.True(t, decodeResponse(&got, appendResponse(nil, &r, &HeaderFilter{})), name)
		assert.Equal(t, r.Status, got.Status, name)
		assert.Equal(t, append(r.Header, Field{ReplayedHeader, "true"}), got.Header, name)
		assert.Equal(t, string(r.Body), string(got.Body), name)
	}
}

func TestUnknownResultsAreNoResponses(t *testing.T) {
	good := appendResponse(nil, &Response{Status: 200, Header: []Field{{"A", "b"}}}, &HeaderFilter{})
	for n := range good { // every truncation
		assert.False(t, decodeResponse(new(Response), good[:n]), n)
	}
	for _, b := range []string{"\x01", "\x03value", "\x04", "\x02\x64\x00", "\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x02\xc8\x01\x01A\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		assert.False(t, decodeResponse(new(Response), []byte(b)), "%x", b)
	}
}

func FuzzDecodeResponse(f *testing.F) {
	f.Add(appendResponse(nil, &Response{Status: 200, Header: []Field{{"A", "b"}}, Body: []byte("x")}, &HeaderFilter{}))
	f.Add([]byte{})
	f.Add(unavailable)
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, second Response
		if !decodeResponse(&first, b) {
			return
		}
		if first.Status < 200 || first.Status > 999 {
			t.Fatalf("status %d", first.Status)
		}
		all := HeaderFilter{only: true}
		for _, h := range first.Header {
			all.names = append(all.names, h.Name)
		}
		if !decodeResponse(&second, appendResponse(nil, &first, &all)) || string(first.Body) != string(second.Body) {
			t.Fatal("what was read cannot be written and read again")
		}
	})
}

func TestStoredHeaders(t *testing.T) {
	all := []Field{
		{"Content-Type", "a"}, {"Content-Encoding", "gzip"}, {"Location", "/1"}, {"Etag", "e"}, {"Link", "1"}, {"Link", "2"},
		{"Set-Cookie", "s"}, {"Date", "d"}, {"connection", "close, X-Hop"}, {"X-Hop", "h"}, {"Connection", "X-Hop-Too"}, {"x-hop-too", "h"}, {"Keep-Alive", "k"}, {"Transfer-Encoding", "chunked"},
		{"Content-Length", "9"}, {"Trailer", "T"}, {"Upgrade", "u"}, {"X-Request-ID", "r"}, {"traceparent", "t"}, {"X-B3-TraceId", "b"},
		{"Idempotent-Replayed", "true"}, {"Proxy-Authenticate", "p"}, {"TE", "x"},
	}
	for _, tc := range []struct {
		filter HeaderFilter
		want   string
	}{
		{HeaderFilter{}, "Content-Type Content-Encoding Location Etag Link Link"},
		{DropHeaders(), "Content-Type Content-Encoding Location Etag Link Link"},
		{DropHeaders("link", "ETag"), "Content-Type Content-Encoding Location"},
		{KeepHeaders(), ""},
		{KeepHeaders("location", "Set-Cookie", "x-hop"), "Location Set-Cookie"},
	} {
		var got Response
		require.True(t, decodeResponse(&got, appendResponse(nil, &Response{Status: 200, Header: all}, &tc.filter)))
		var names []string
		for _, f := range got.Header[:len(got.Header)-1] {
			names = append(names, f.Name)
		}
		assert.Equal(t, tc.want, strings.Join(names, " "))
	}
}

// A flight goes back to the pool blank: nothing of one request may reach the next.
func TestFlightsAreBlankWhenReused(t *testing.T) {
	f := &flight{guard: new(Guard), routing: "r", scratch: []byte("secret")}
	f.req = Request{Method: "POST", Route: "r", RawQuery: "q", ContentType: "c", RemoteAddr: "a", Native: f, Body: []byte("b"),
		PathParams: append(make([]Pair, 0, 4), Pair{Name: "id", Value: "1"})}
	f.resp = Response{Status: 200, Header: append(make([]Field, 0, 4), Field{"A", "secret"}), Body: []byte("b")}
	f.reset()
	for _, p := range f.req.PathParams[:cap(f.req.PathParams)] {
		assert.Zero(t, p)
	}
	for _, h := range f.resp.Header[:cap(f.resp.Header)] {
		assert.Zero(t, h)
	}
	assert.Empty(t, f.scratch)
	f.scratch, f.req.PathParams, f.resp.Header = nil, nil, nil
	assert.Equal(t, flight{}, *f)

	f.scratch = make([]byte, 0, maxScratch+1)
	f.reset()
	assert.Nil(t, f.scratch, "one large response does not pin its memory")
}
