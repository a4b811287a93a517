package core

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/adapter"
)

func TestResultRoundTrip(t *testing.T) {
	for name, r := range map[string]Response{
		"empty": {Status: 204},
		"headers": {Status: 201, Body: []byte("x"), Header: []Field{{Name: "Content-Type", Value: "text/plain"},
			{Name: "Link", Value: "<a>"}, {Name: "Link", Value: "<b>"}, {Name: "X-Empty", Value: ""}}},
		"removed": {Status: 204, Header: []Field{{Name: "A", Value: "b"}}, Removed: []string{"X-Frame-Options", "Vary"}, Body: []byte("x")},
		"binary":  {Status: 200, Body: []byte{0, 1, 2, 255, 254}},
		"large":   {Status: 599, Header: []Field{{Name: "X", Value: strings.Repeat("v", 70000)}}, Body: make([]byte, 1<<20)},
	} {
		var got Response
		require.True(t, decodeResponse(&got, appendResponse(nil, &r, &HeaderFilter{})), name)
		assert.Equal(t, r.Status, got.Status, name)
		assert.Equal(t, append(r.Header, Field{Name: ReplayedHeader, Value: "true"}), got.Header, name)
		assert.Equal(t, string(r.Body), string(got.Body), name)
		assert.Equal(t, r.Removed, got.Removed, name)
	}
}

// TestStoredResults: the bytes of results that other versions have stored, or read, must not change (docs/operating.md).
func TestStoredResults(t *testing.T) {
	r := Response{Status: 201, Header: []Field{{Name: "A", Value: "b"}, {Name: "A", Value: "c"}}, Body: []byte("body")}
	check := func(stored string) {
		t.Helper()
		assert.Equal(t, stored, string(appendResponse(nil, &r, &HeaderFilter{})))
		var got Response
		require.True(t, decodeResponse(&got, []byte(stored)))
		want := r
		want.Header = append(r.Header, Field{Name: ReplayedHeader, Value: "true"})
		assert.Equal(t, want, got)
	}
	check("\x02\xc9\x01\x01A\x01b\x01A\x01c\x00body") // 0.1.0
	r.Removed = []string{"Vary"}
	check("\x05\xc9\x01\x01A\x01b\x01A\x01c\x00\x04Vary\x00body") // 0.2.0
	assert.Equal(t, "\x01\x03\x04", string([]byte{resultUnavailable, resultValue, resultFailed}))
}

func TestUnknownResultsAreNoResponses(t *testing.T) {
	good := appendResponse(nil, &Response{Status: 200, Header: []Field{{Name: "A", Value: "b"}}, Removed: []string{"C"}}, &HeaderFilter{})
	for n := range good { // every truncation
		assert.False(t, decodeResponse(new(Response), good[:n]), n)
	}
	for _, b := range []string{"\x01", "\x03value", "\x04", "\x02\x64\x00", "\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x02\xc8\x01\x01A\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		assert.False(t, decodeResponse(new(Response), []byte(b)), "%x", b)
	}
}

func FuzzDecodeResponse(f *testing.F) {
	f.Add(appendResponse(nil, &Response{Status: 200, Header: []Field{{Name: "A", Value: "b"}}, Body: []byte("x")}, &HeaderFilter{}))
	f.Add(appendResponse(nil, &Response{Status: 200, Removed: []string{"A"}, Body: []byte("x")}, &HeaderFilter{}))
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
		all := HeaderFilter{only: true, names: first.Removed}
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
		{Name: "Content-Type", Value: "a"}, {Name: "Content-Encoding", Value: "gzip"}, {Name: "Location", Value: "/1"},
		{Name: "Etag", Value: "e"}, {Name: "Link", Value: "1"}, {Name: "Link", Value: "2"}, {Name: "Set-Cookie", Value: "s"},
		{Name: "Date", Value: "d"}, {Name: "connection", Value: "close, X-Hop"}, {Name: "X-Hop", Value: "h"},
		{Name: "Connection", Value: "X-Hop-Too"}, {Name: "x-hop-too", Value: "h"}, {Name: "Keep-Alive", Value: "k"},
		{Name: "Transfer-Encoding", Value: "chunked"}, {Name: "Content-Length", Value: "9"}, {Name: "Trailer", Value: "T"},
		{Name: "Upgrade", Value: "u"}, {Name: "X-Request-ID", Value: "r"}, {Name: "traceparent", Value: "t"},
		{Name: "X-B3-TraceId", Value: "b"}, {Name: "Idempotent-Replayed", Value: "true"}, {Name: "Proxy-Authenticate", Value: "p"},
		{Name: "TE", Value: "x"},
	}
	removed := []string{""}
	for _, f := range all {
		removed = append(removed, f.Name)
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
		require.True(t, decodeResponse(&got, appendResponse(nil, &Response{Status: 200, Header: all, Removed: removed}, &tc.filter)))
		var names []string
		for _, f := range got.Header[:len(got.Header)-1] {
			names = append(names, f.Name)
		}
		assert.Equal(t, tc.want, strings.Join(names, " "))
		assert.Equal(t, tc.want, strings.Join(got.Removed, " "))
	}
}

// What belongs to one request is not stored unless it is named, and what belongs to one message
// never is. Each name is spelled as its source does, and what only looks like it is stored.
func TestNamesOfTheDefaultHeaderFilter(t *testing.T) {
	stored := func(name string, filter HeaderFilter) bool {
		var got Response
		r := Response{Status: 200, Header: []Field{{Name: name, Value: "v"}}}
		require.True(t, decodeResponse(&got, appendResponse(nil, &r, &filter)))
		return len(got.Header) > 1 // the mark of a replay comes last
	}
	for source, names := range map[string]string{
		"RFC 6265, RFC 9110":     "Set-Cookie Date",
		"proxies and frameworks": "X-Request-ID Request-Id X-Correlation-ID Correlation-Id X-Trace-Id Trace-Id",
		"W3C Trace Context":      "traceparent tracestate traceresponse",
		"Zipkin, B3":             "b3 X-B3-TraceId X-B3-SpanId X-B3-ParentSpanId X-B3-Sampled X-B3-Flags",
		"Jaeger":                 "uber-trace-id",
		"Amazon":                 "x-amzn-RequestId X-Amzn-Trace-Id",
		"Google":                 "X-Cloud-Trace-Context",
		"W3C Server Timing":      "Server-Timing",
	} {
		for name := range strings.FieldsSeq(names) {
			for _, name := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
				assert.False(t, stored(name, HeaderFilter{}), "%s: %s", source, name)
				assert.False(t, stored(name, DropHeaders("X-Other")), "%s: %s", source, name)
				assert.True(t, stored(name, KeepHeaders(name)), "%s: %s", source, name)
				assert.True(t, stored(name+"s", HeaderFilter{}), "%s: %ss", source, name)
				assert.True(t, stored(name[1:], HeaderFilter{}), "%s: %s", source, name[1:])
			}
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "TE", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Idempotent-Replayed"} {
		assert.False(t, stored(name, HeaderFilter{}), name)
		assert.False(t, stored(name, HeaderFilter{only: true, names: []string{name}}), name)
		assert.NotEmpty(t, KeepHeaders(name).fault(), name)
	}
}

// An httpOperation goes back to the pool blank: nothing of one request may reach the next.
func TestHTTPOperationsAreBlankWhenReused(t *testing.T) {
	f := &httpOperation{guard: new(Guard), user: User{ID: "u"}, scratch: []byte("secret"),
		echo:    [2]Field{{Name: "Idempotency-Key", Value: "k"}},
		counted: append(make([]adapter.Pair, 0, 4), adapter.Pair{Name: "if-match", Value: "secret"})}
	f.req = Request{Method: "POST", Route: "r", RawQuery: "q", ContentType: "c", RemoteAddr: "a", Native: f, Body: []byte("b"),
		PathParams: append(make([]adapter.Pair, 0, 4), adapter.Pair{Name: "id", Value: "1"})}
	f.resp = Response{Status: 200, Header: append(make([]Field, 0, 4), Field{Name: "A", Value: "secret"}), Body: []byte("b")}
	f.reset()
	for _, p := range f.req.PathParams[:cap(f.req.PathParams)] {
		assert.Zero(t, p)
	}
	for _, h := range f.resp.Header[:cap(f.resp.Header)] {
		assert.Zero(t, h)
	}
	for _, h := range f.counted[:cap(f.counted)] {
		assert.Zero(t, h)
	}
	assert.Empty(t, f.scratch)
	assert.Empty(t, f.counted)
	f.scratch, f.req.PathParams, f.resp.Header, f.counted = nil, nil, nil, nil
	assert.Equal(t, httpOperation{}, *f)

	f.scratch = make([]byte, 0, maxScratch+1)
	f.reset()
	assert.Nil(t, f.scratch, "one large response does not pin its memory")
}
