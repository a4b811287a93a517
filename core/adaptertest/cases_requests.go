package adaptertest

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

func posted(target, body string) request { return request{target: target, body: body} }

func form(body string) request {
	return request{body: body, media: "application/x-www-form-urlencoded"}
}

// parameterCases: which requests are one operation. The keys themselves are in keys.json.
var parameterCases = []testCase{
	{
		name: "a body with a Content-Encoding",
		why:  "a body with a Content-Encoding counts by its raw bytes",
		steps: []step{
			ask{request{body: gzipped(`{"a":1,"b":2}`), fields: []adapter.Field{field("Content-Encoding", "gzip")}}, created, ""},
			ask{request{body: gzipped(`{"b":2,"a":1}`), fields: []adapter.Field{field("Content-Encoding", "gzip")}}, created, ""},
			ask{request{body: gzipped(`{"a":1,"b":2}`), fields: []adapter.Field{field("Content-Encoding", "gzip")}}, replayed.of(1), ""},
		},
		handler: func(h *probe, c Call, n int) error {
			body, err := c.Body() // as sent
			if err != nil {
				return err
			}
			return c.Blob(201, "application/octet-stream", fmt.Appendf(nil, "%d %x", n, body))
		},
	},
	{
		name:   "a key in the body",
		why:    "BodyKey and RawBody see the bytes that were sent, with a length and in chunks",
		routes: []route{{policy: &core.Policy{Key: core.BodyKey("key"), Compare: core.RawBody}}},
		steps: []step{
			ask{request{body: `{"key":"k-1", "n":1}`, chunked: true}, created, ""},
			ask{request{body: `{"key":"k-1", "n":1}`}, replayed, ""},
			ask{request{body: `{"n":1, "key":"k-1"}`}, refused(codes.KeyReused), ""},
			ask{request{body: `{"n":1}`}, refused(codes.KeyMissing), ""},
		},
	},
	{
		name: "a function of the request",
		why:  "Func sees the request's plain values and its body through every adapter alike",
		routes: []route{{pattern: "/orders/:id/files/*", policy: &core.Policy{Key: core.Func(func(r *adapter.Request) (string, error) {
			first, lines := r.Headers.Header("X-Part", 0)
			return fmt.Sprintf("%s|%s|%v|%s|%s|%s|%d|%s", r.Method, r.Route, r.PathParams, r.RawQuery, r.ContentType,
				first, lines, r.Body), nil
		})}}},
		steps: []step{
			ask{request{target: "/orders/7/files/a/b.txt?x=%20;y", body: "raw", media: "text/plain; charset=utf-8",
				fields: []adapter.Field{field("X-Part", "1"), field("X-Part", "2")}}, created, ""},
		},
	},
}

// requestCases: the request stays whole for the handler.
var requestCases = []testCase{
	{
		name: "the body for the handler",
		why: "Exchange.ReadBody: the handler can read all of the body that the guard has read, with a length and in chunks, large and " +
			"small, and can answer it, whatever its bytes",
		handler: func(h *probe, c Call, n int) error {
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Blob(200, "application/octet-stream", body)
		},
		steps: []step{
			ask{posted("/orders?n=1", order), want{}, ""},
			ask{request{target: "/orders?n=2", body: order, chunked: true}, want{}, ""},
			ask{request{target: "/orders?n=3", body: strings.Repeat("0123456789", 50_000), media: "text/plain"}, want{}, ""},
			ask{request{target: "/orders?n=4", body: strings.Repeat("9876543210", 50_000), media: "text/plain", chunked: true}, want{}, ""},
			ask{request{target: "/orders?n=5", body: allBytes, media: "application/octet-stream"}, want{}, ""},
			ask{request{target: "/orders?n=5", body: allBytes, media: "application/octet-stream"}, want{kind: replay}, ""},
			ask{request{target: "/orders?n=6"}, want{}, ""},
			ask{request{target: "/orders?n=7", body: order, expect: true}, want{}, ""},
			ask{posted("/orders?n=7", order), want{kind: replay}, ""},
		},
	},
	{
		name: "an empty body of unknown length",
		why: "what clients of HTTP/2 and those that send chunks make of an empty stream is no body, if it has no Content-Type; " +
			"with one, somebody in front may have read it away",
		steps: []step{
			ask{request{media: "-", chunked: true}, created, ""},
			ask{request{media: "-", chunked: true}, replayed, ""},
			ask{request{media: "-"}, replayed, ""},
		},
	},
	{
		name: "the framework's binding",
		why:  "Exchange.ReadBody: the handler can read the body in any way that the framework offers: JSON and forms bound to a struct",
		handler: func(h *probe, c Call, n int) error {
			var in struct {
				SKU      string `json:"sku" form:"sku"`
				Quantity int    `json:"quantity" form:"quantity"`
			}
			if err := c.Bind(&in); err != nil {
				return err
			}
			return c.Blob(200, "text/plain", fmt.Appendf(nil, "%s times %d", in.SKU, in.Quantity))
		},
		steps: []step{
			ask{anOrder, want{}, ""},
			ask{request{body: "sku=B+2&quantity=3", media: "application/x-www-form-urlencoded"}, want{}, ""},
			ask{request{body: "quantity=3&sku=B%202", media: "application/x-www-form-urlencoded"}, want{kind: replay}, ""},
			ask{upload("", "b1", "cat.png", "meow"), want{}, ""},
		},
	},
	{
		name: "an uploaded file",
		why:  "Exchange.ReadBody: multipart forms, too, are the handler's to read after the guard has read them",
		handler: func(h *probe, c Call, n int) error {
			header, err := c.FormFile("file")
			if err != nil {
				return err
			}
			file, err := header.Open()
			if err != nil {
				return err
			}
			defer file.Close()
			content, err := io.ReadAll(file)
			if err != nil {
				return err
			}
			return c.Blob(201, "text/plain", fmt.Appendf(nil, "%s: %s", header.Filename, content))
		},
		steps: []step{
			ask{upload("", "b1", "cat.png", "meow"), created, ""},
			ask{upload("", "b2", "cat.png", "meow"), replayed, ""},
		},
	},
	{
		name:   "a body over the limit",
		why:    "a body over the limit is 413 body_too_large, with a Content-Length and in chunks, and nothing is recorded",
		policy: core.Policy{BodyLimit: 64},
		steps: []step{
			ask{request{body: strings.Repeat("x", 65), media: "text/plain"}, refused(codes.BodyTooLarge), ""},
			ask{request{body: strings.Repeat("x", 65), media: "text/plain", chunked: true}, refused(codes.BodyTooLarge), ""},
			executions(0),
			ask{request{body: strings.Repeat("x", 64), media: "text/plain"}, created, ""},
			ask{request{body: strings.Repeat("x", 64), media: "text/plain", chunked: true}, replayed, ""},
		},
	},
	{
		name: "a body that ends too early",
		why:  "RFC 9112, section 8: an incomplete request is no operation; what has come of it must not be run or recorded",
		steps: []step{
			sendTruncated{request{body: order, cut: 10}},
			ask{anOrder, created, ""},
		},
	},
	{
		name: "safe methods",
		why:  "GET, HEAD, OPTIONS, TRACE (RFC 9110, section 9.2.1) and QUERY (RFC 10008) pass untouched",
		routes: []route{{method: "GET", policy: &clientKey}, {method: "HEAD", policy: &clientKey}, {method: "OPTIONS", policy: &clientKey},
			{method: "QUERY", policy: &clientKey}},
		steps: []step{
			ask{request{method: "GET"}, want{status: 201, kind: passed}, ""},
			ask{request{method: "GET"}, want{status: 201, kind: passed}, ""},
			ask{request{method: "HEAD", keys: []string{"k-1"}}, want{status: 201, kind: passed}, ""},
			ask{request{method: "OPTIONS", keys: []string{"k-1"}}, want{status: 201, kind: passed}, ""},
			ask{request{method: "QUERY", body: order}, want{status: 201, kind: passed}, ""},
			ask{request{method: "QUERY", body: order}, want{status: 201, kind: passed}, ""},
		},
	},
	{
		name:   "the framework's own user",
		why:    "what authentication middleware has left in the framework's context tells users apart",
		native: true,
		app:    App{Login: true},
		steps: []step{
			ask{request{user: "-", body: order, fields: []adapter.Field{field("X-Login", "ada")}}, created, ""},
			ask{request{user: "bob", body: order, fields: []adapter.Field{field("X-Login", "ada")}}, replayed, ""},
			ask{request{user: "-", body: order, fields: []adapter.Field{field("X-Login", "eve")}}, created, ""},
			ask{request{body: order}, refused(codes.UserMissing), ""},
			then(func(s *env) {
				s.store.mu.Lock()
				defer s.store.mu.Unlock()
				if e := s.events[len(s.events)-1]; e.Err == nil || !strings.Contains(e.Err.Error(), `"user"`) {
					s.Errorf("the observer was told %v; want an error that names the empty key", e.Err)
				}
			}),
		},
	},
	{
		name:   "the peer's address",
		why:    "Request.RemoteAddr is \"IP:port\"; the port is another for each connection and must not count",
		policy: core.Policy{User: core.UserFromRemoteAddr()},
		steps: []step{
			ask{request{user: "-", body: order}, created, ""},
			ask{request{user: "-", body: order}, replayed, ""},
		},
	},
}

// upload is a multipart form with sku, quantity and a file.
func upload(target, boundary, name, content string) request {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	// Writing to a buffer cannot fail, and the boundaries are the suite's own.
	_ = w.SetBoundary(boundary)
	_ = w.WriteField("sku", "A-1")
	_ = w.WriteField("quantity", "2")
	part, _ := w.CreateFormFile("file", name)
	_, _ = part.Write([]byte(content))
	_ = w.Close()
	return request{target: target, body: b.String(), media: w.FormDataContentType()}
}
