package adaptertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// allBytes holds every byte value, also those that text would not survive.
var allBytes = func() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}()

// gzipped makes one stored block (RFC 1951, section 3.2.4) of text. What package gzip makes of it
// depends on Go's version, and the bytes stand in transcripts.
func gzipped(text string) string {
	n := uint16(len(text))
	b := append([]byte{0x1f, 0x8b, 8, 9: 0xff}, 1) // RFC 1952: deflate, no name and no time
	b = binary.LittleEndian.AppendUint16(b, n)
	b = binary.LittleEndian.AppendUint16(b, ^n)
	b = append(b, text...)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE([]byte(text)))
	return string(binary.LittleEndian.AppendUint32(b, uint32(n)))
}

// tooLong makes a body of 50 lines that differ, so that a piece left out or sent twice
// shows.
func tooLong() []string {
	pieces := make([]string, 50)
	for i := range pieces {
		pieces[i] = fmt.Sprintf("%03d %s\n", i, strings.Repeat(string(rune('a'+i%26)), 95))
	}
	return pieces
}

// responseCases: what is captured, and what comes out again.
var responseCases = []testCase{
	{
		name: "statuses without a body",
		why:  "RFC 9110, section 6.4.1: 204 and 304 have no body and no length, first and again",
		handler: func(h *probe, c Call, n int) error {
			status, _ := strconv.Atoi(c.Query("status"))
			c.SetHeader("Etag", `"7"`)
			return c.NoContent(status)
		},
		steps: []step{
			ask{posted("/orders?status=204", order), want{status: 204, absent: []string{"Content-Length"}}, ""},
			ask{posted("/orders?status=204", order), want{status: 204, kind: replay, absent: []string{"Content-Length"}}, ""},
			ask{posted("/orders?status=304", order), want{status: 304}, ""},
			ask{posted("/orders?status=304", order), want{status: 304, kind: replay}, ""},
			ask{posted("/orders?status=201", order), created, ""},
			ask{posted("/orders?status=201", order), replayed, ""},
			ask{posted("/orders?status=303", order), want{status: 303}, ""},
			ask{posted("/orders?status=303", order), want{status: 303, kind: replay}, ""},
		},
	},
	{
		name:    "no answer at all",
		why:     "a handler that writes nothing answers 200 with nothing, and that is stored: it is no error, and no failure",
		handler: func(*probe, Call, int) error { return nil },
		steps: []step{
			ask{anOrder, want{status: 200}, ""},
			ask{anOrder, want{status: 200, kind: replay}, ""},
		},
	},
	{
		name: "a body in pieces",
		why:  "a recorder that is bypassed captures an empty body, or only the last write",
		handler: func(h *probe, c Call, n int) error {
			return c.Write(201, "text/plain", false, tooLong()...)
		},
		steps: []step{
			ask{anOrder, created, ""},
			ask{anOrder, replayed, ""},
		},
	},
	{
		name:    "the framework's own renderer",
		why:     "the handler's response is untouched and replayed as it was, Content-Type and all",
		ownText: true,
		handler: func(h *probe, c Call, n int) error {
			return c.JSON(201, map[string]any{"order": n, "note": "<&>\u2028é"})
		},
		steps: []step{
			ask{anOrder, created, ""},
			ask{anOrder, replayed, ""},
		},
	},
	{
		name: "a body with a Content-Encoding, out",
		why:  "dropping Content-Encoding: a gzip body becomes noise",
		handler: func(h *probe, c Call, n int) error {
			c.SetHeader("Content-Encoding", "gzip")
			c.SetHeader("Vary", "Accept-Encoding")
			return c.Blob(200, "application/json", []byte(gzipped(`{"order":1}`)))
		},
		steps: []step{
			ask{anOrder, want{status: 200, fields: []adapter.Field{field("Content-Encoding", "gzip")}}, ""},
			ask{anOrder, want{status: 200, kind: replay, fields: []adapter.Field{field("Content-Encoding", "gzip")}}, ""},
		},
	},
	{
		name: "fields of one message",
		why:  "replaying Set-Cookie, Date and request ids",
		handler: func(h *probe, c Call, n int) error {
			c.AddHeader("Set-Cookie", "session=s3cret")
			c.AddHeader("Set-Cookie", "theme=dark")
			c.SetHeader("Date", "Mon, 01 Jan 2001 00:00:00 GMT")
			c.SetHeader("X-Request-Id", strconv.Itoa(n))
			c.SetHeader("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
			c.SetHeader("Idempotent-Replayed", "true") // of an upstream service, say
			return receipt(h, c, n)
		},
		noBare: true,
		steps: []step{
			then(func(s *env) { s.text.line("(the handler's answer is not shown)") }),
			sendUnchecked{anOrder},
			ask{anOrder, want{status: 201, kind: replay, absent: []string{"Set-Cookie", "X-Request-Id", "Traceparent"}}, ""},
		},
	},
	{
		name:   "a cookie that is kept",
		why:    "Policy.StoredHeaders: KeepHeaders stores what it names and nothing else; two cookies are two field lines",
		policy: core.Policy{StoredHeaders: core.KeepHeaders("set-cookie", "content-type")},
		handler: func(h *probe, c Call, n int) error {
			c.AddHeader("Set-Cookie", "session=s3cret; Path=/; HttpOnly")
			c.AddHeader("Set-Cookie", "theme=dark")
			return receipt(h, c, n)
		},
		steps: []step{
			ask{anOrder, created, ""},
			ask{anOrder, want{status: 201, kind: replay, other: []string{"Location"}, absent: []string{"Location"},
				fields: []adapter.Field{field("Set-Cookie", "session=s3cret; Path=/; HttpOnly"), field("Set-Cookie", "theme=dark")}}, ""},
		},
	},
	{
		name: "repeated fields",
		why:  "a replay never doubles a header: each line once, although a middleware in front sets the same names",
		app: App{Outer: []adapter.Field{field("Link", "</help>; rel=help"), field("X-Frame-Options", "DENY"),
			field("Content-Type", "text/html"), field("Cache-Control", "public"), field("X-Request-Id", "outer")}},
		handler: func(h *probe, c Call, n int) error {
			c.AddHeader("Link", "</orders/1>; rel=self")
			c.AddHeader("Link", "</orders>; rel=up")
			c.AddHeader("Warning", "199 - a")
			c.AddHeader("Warning", "199 - a")
			c.SetHeader("Cache-Control", "private")
			return receipt(h, c, n)
		},
		steps: []step{
			ask{anOrder, created, ""},
			ask{anOrder, replayed, ""},
			ask{request{user: "-"}, refused(codes.UserMissing), ""},
		},
	},
	{
		name: "fields of a middleware in front",
		why:  "a field that the handler has left as it was is the middleware's: a replay has it as it is for its own client",
		app:  App{AllowOrigin: true},
		steps: []step{
			ask{request{body: order, fields: []adapter.Field{field("Origin", "https://a.example")}},
				want{status: 201, fields: []adapter.Field{field("Access-Control-Allow-Origin", "https://a.example")}}, ""},
			ask{request{body: order, fields: []adapter.Field{field("Origin", "https://b.example")}},
				want{status: 201, kind: replay, other: []string{"Access-Control-Allow-Origin"},
					fields: []adapter.Field{field("Access-Control-Allow-Origin", "https://b.example")}}, ""},
			ask{anOrder, want{status: 201, kind: replay, other: []string{"Access-Control-Allow-Origin"},
				absent: []string{"Access-Control-Allow-Origin"}}, ""},
		},
	},
	{
		name: "fields of a middleware in front that the handler deletes",
		why:  "what the handler has taken out of its answer is not in the replay either; a refusal is not the handler's, and has it",
		app: App{Outer: []adapter.Field{field("X-Frame-Options", "DENY"), field("X-Powered-By", "us"),
			field("Content-Type", "text/html")}},
		handler: func(h *probe, c Call, n int) error {
			c.DelHeader("X-Frame-Options")
			if n > 1 {
				c.DelHeader("Content-Type")
				return c.NoContent(204)
			}
			return receipt(h, c, n)
		},
		steps: []step{
			ask{anOrder, want{status: 201, absent: []string{"X-Frame-Options"}}, ""},
			ask{anOrder, want{status: 201, kind: replay, absent: []string{"X-Frame-Options"}}, ""},
			ask{posted("", "{}"), want{status: 204, absent: []string{"X-Frame-Options", "Content-Type"}}, ""},
			ask{posted("", "{}"), want{status: 204, kind: replay, absent: []string{"X-Frame-Options", "Content-Type"}}, ""},
			ask{request{user: "-"},
				want{kind: refusal, code: codes.UserMissing, fields: []adapter.Field{field("X-Frame-Options", "DENY")}}, ""},
		},
	},
	{
		name:   "a response over the limit",
		why:    "a response over the limit is delivered whole; a duplicate gets 409 result_unavailable, and the handler does not run again",
		policy: core.Policy{ResponseLimit: 4999},
		handler: func(h *probe, c Call, n int) error {
			if c.Query("blob") != "" {
				return c.Blob(201, "text/plain", []byte(strings.Join(tooLong(), "")))
			}
			c.SetHeader("Location", "/orders/1")
			return c.Write(201, "text/plain", false, tooLong()...)
		},
		steps: []step{
			ask{anOrder, created, ""},
			awaitRuns{},
			ask{anOrder, refused(codes.ResultUnavailable), ""},
			ask{posted("/orders?blob=1", order), created, ""},
			awaitRuns{},
			ask{posted("/orders?blob=1", order), refused(codes.ResultUnavailable), ""},
		},
	},
	{
		name: "a response of 3 MiB",
		why:  "a response that is larger than every buffer on the way is delivered whole",
		handler: func(h *probe, c Call, n int) error {
			return c.Blob(201, "application/octet-stream", bytes.Repeat([]byte(allBytes), 3*4096))
		},
		steps: []step{
			ask{anOrder, created, ""},
			awaitRuns{},
			ask{anOrder, refused(codes.ResultUnavailable), ""},
		},
	},
	{
		name:  "a response that is flushed",
		why:   "a flush sends the status that the handler has set; what is flushed goes out at once, and is not stored",
		needs: Features{Flush: true},
		handler: func(h *probe, c Call, n int) error {
			c.SetHeader("Location", "/orders/1")
			return c.Write(201, "text/plain", true, "one\n", "two\n", "three\n")
		},
		steps: []step{
			ask{anOrder, created, ""},
			awaitRuns{},
			ask{anOrder, refused(codes.ResultUnavailable), ""},
		},
	},
	{
		name: "a stream of events",
		why:  "what is streamed reaches the client while the handler is still at it, and a duplicate gets 409 result_unavailable",
		handler: func(h *probe, c Call, n int) error {
			return c.Stream(200, "text/event-stream", func(w io.Writer, flush func()) error {
				for i := range 3 {
					if _, err := fmt.Fprintf(w, "data: %d\n\n", i); err != nil {
						return err
					}
					flush()
				}
				if h.s == nil {
					return nil
				}
				h.hold()
				_, err := io.WriteString(w, "data: end\n\n")
				return err
			})
		},
		noBare: true,
		steps: []step{
			send{"stream", anOrder},
			listen{"stream", "data: 0\n\ndata: 1\n\ndata: 2\n\n"},
			resume(1),
			listen{"stream", "data: end\n\n"},
			leave{"stream"},
			awaitRuns{},
			ask{anOrder, refused(codes.ResultUnavailable), ""},
			executions(1),
		},
	},
	{
		name: "an upgraded connection",
		why:  "a hijacked connection works, and a duplicate gets 409 result_unavailable",
		handler: func(h *probe, c Call, n int) error {
			return c.Upgrade("echo", func(conn net.Conn) {
				b := make([]byte, 5)
				if _, err := io.ReadFull(conn, b); err == nil {
					_, _ = conn.Write(bytes.ToUpper(b))
				}
			})
		},
		noBare: true,
		steps: []step{
			upgraded{request: anOrder, say: "hello", hear: "HELLO"},
			awaitRuns{},
			ask{anOrder, refused(codes.ResultUnavailable), ""},
			executions(1),
		},
	},
	{
		name:  "early hints",
		why:   "1xx responses are not the status",
		needs: Features{EarlyHints: true},
		handler: func(h *probe, c Call, n int) error {
			if err := c.EarlyHints("</style.css>; rel=preload"); err != nil {
				return err
			}
			return receipt(h, c, n)
		},
		steps: []step{
			ask{anOrder, created, ""},
			ask{anOrder, replayed, ""},
		},
	},
}
