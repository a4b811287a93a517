package adaptertest

import (
	"context"
	"fmt"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

const order = `{"sku":"A-1","quantity":2}`

var (
	anOrder   = request{body: order}
	clientKey = core.ClientKey()
)

func keyed(keys ...string) request { return request{keys: keys, body: order} }

// duplicateCases: what the first request gets, and what its duplicates get.
var duplicateCases = []testCase{
	{
		name: "first and again",
		why:  "the first answer is the handler's, untouched; a duplicate gets the same status, body and stored fields, and Idempotent-Replayed: true",
		steps: []step{
			ask{anOrder, created, ""},
			ask{anOrder, replayed, ""},
			ask{anOrder, replayed, ""},
		},
	},
	{
		name:    "running",
		why:     "a duplicate of a running operation gets 409 in_progress and Retry-After of at least 1",
		handler: held,
		steps: []step{
			begin{"first", anOrder},
			ask{anOrder, refused(codes.InProgress), ""},
			resume(1),
			await{"first", created},
			ask{anOrder, replayed, ""},
		},
	},
	{
		name: "another user",
		why:  "one key of two users is two operations",
		steps: []step{
			ask{anOrder, created, ""},
			ask{request{user: "bob", body: order}, created, ""},
			ask{anOrder, replayed.of(1), ""},
		},
	},
	{
		name: "another route",
		why:  "one key on two routes, or under two methods, is two operations",
		routes: []route{
			{pattern: "/orders", policy: &clientKey}, {pattern: "/refunds", policy: &clientKey},
			{method: "PUT", pattern: "/orders", policy: &clientKey},
		},
		steps: []step{
			ask{keyed("k-1"), created, ""},
			ask{request{target: "/refunds", keys: []string{"k-1"}, body: order}, created, ""},
			ask{request{method: "PUT", keys: []string{"k-1"}, body: order}, created, ""},
		},
	},
	{
		name:    "another path parameter",
		why:     "/orders/:id/pay for two ids is two operations; the route of the key is the pattern, in one spelling for all frameworks",
		routes:  []route{{pattern: "/orders/:id/pay", policy: new(core.Policy)}},
		handler: echoParam,
		steps: []step{
			ask{request{target: "/orders/1/pay", body: order}, created, ""},
			ask{request{target: "/orders/2/pay", body: order}, created, ""},
			ask{request{target: "/orders/2/pay", body: order}, replayed, ""},
		},
	},
	{
		name:    "strings that are used again",
		why:     "what is kept of a request (key, header, body) is a copy: Fiber uses the memory again for the next request",
		routes:  []route{{pattern: "/orders/:id/pay", policy: new(core.Policy)}},
		handler: echoParam,
		steps: []step{
			ask{request{target: "/orders/AAAA/pay", user: "alice", body: `{"note":"aaaaaaaaaaaa"}`}, created, "kept"},
			ask{request{target: "/orders/BBBB/pay", user: "bobby", body: `{"note":"bbbbbbbbbbbb"}`}, created, "kept"},
			ask{request{target: "/orders/CCCC/pay", user: "carol", body: `{"note":"cccccccccccc"}`}, created, "kept"},
			ask{request{target: "/orders/AAAA/pay", user: "alice", body: `{"note":"aaaaaaaaaaaa"}`}, replayed.of(2), "kept"},
			ask{request{target: "/orders/BBBB/pay", user: "bobby", body: `{"note":"bbbbbbbbbbbb"}`}, replayed.of(1), "kept"},
			ask{request{target: "/orders/CCCC/pay", user: "carol", body: `{"note":"cccccccccccc"}`}, replayed, "kept"},
			ask{request{target: "/orders/CCCC/pay", user: "alice", body: `{"note":"aaaaaaaaaaaa"}`}, created, "kept"},
		},
	},
	{
		name: "a pipeline",
		why:  "RFC 9112, section 9.3.2: requests sent without waiting are answered in order, replays and refusals too",
		steps: []step{
			pipeline{
				{anOrder, created, ""},
				{anOrder, replayed, ""},
				{request{body: `{"sku":"B-2"}`}, created, ""},
				{request{body: `{"sku":"B-2"}`}, replayed, ""},
				{request{user: "-", body: order}, refused(codes.UserMissing), ""},
			},
		},
	},
	{
		name:   "an error format of the service's own",
		why:    "one hook replaces the whole answer of a refusal, for services with {code,msg,data}: status, header (in any case) and body; the marks of a refusal stay",
		policy: clientKey,
		config: func(c *core.Config) {
			c.Refuse = func(_ context.Context, r *core.Refusal) *adapter.Response {
				return &adapter.Response{
					Status: 200, Header: []adapter.Field{field("content-type", "application/json"), field("X-Method", r.Request.Method)},
					Body: fmt.Appendf(nil, `{"code":%d,"msg":%q,"data":null}`, r.Status*100, r.Code),
				}
			}
		},
		steps: []step{
			ask{anOrder, want{status: 200, kind: custom, fields: []adapter.Field{field(core.RefusedHeader, "key_missing"), field("Cache-Control", "no-store"), field("X-Method", "POST"), field("Content-Type", "application/json")}}, ""},
			ask{keyed("k-1"), created, ""},
			ask{keyed("k-1"), replayed, ""},
		},
	},
}

// echoParam answers with what belongs to the request alone.
func echoParam(_ *probe, c Call, n int) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	c.SetHeader("Location", "/receipts/"+c.Param("id"))
	c.SetHeader("X-For", c.Header("X-User"))
	return c.Blob(201, "application/json", fmt.Appendf(nil, `{"n":%d,"id":%q,"body":%s}`, n, c.Param("id"), body))
}

// clientKeyCases: Idempotency-Key (draft-ietf-httpapi-idempotency-key-header).
var clientKeyCases = []testCase{
	{
		name:   "key optional",
		why:    "an optional key that is missing lets the request pass unprotected",
		policy: core.Policy{Key: core.Header(core.Optional)},
		steps: []step{
			ask{anOrder, want{status: 201, kind: passed}, ""},
			ask{anOrder, want{status: 201, kind: passed}, ""},
			ask{keyed("k-1"), created, ""},
			ask{keyed("k-1"), replayed, ""},
		},
	},
	{
		name:   "key invalid",
		why:    "malformed, empty, a list, over 255 bytes: 400 key_invalid, and nothing is recorded",
		policy: clientKey,
		steps: []step{
			ask{keyed(""), refused(codes.KeyInvalid), ""},
			ask{keyed(`""`), refused(codes.KeyInvalid), ""},
			ask{keyed(`"open`), refused(codes.KeyInvalid), ""},
			ask{keyed(`"a", "b"`), refused(codes.KeyInvalid), ""},
			ask{keyed(`a,b`), refused(codes.KeyInvalid), ""},
			ask{keyed(`two words`), refused(codes.KeyInvalid), ""},
			ask{keyed(`"k";p=1`), refused(codes.KeyInvalid), ""},
			ask{keyed("caf\xc3\xa9"), refused(codes.KeyInvalid), ""},
			ask{keyed(strings.Repeat("k", 256)), refused(codes.KeyInvalid), ""},
			executions(0),
		},
	},
	{
		name:   "key twice",
		why:    "two key fields are 400 key_invalid, also if they are equal; frameworks show the first one only",
		policy: clientKey,
		steps: []step{
			ask{keyed("k-1", "k-2"), refused(codes.KeyInvalid), ""},
			ask{keyed("k-1", "k-1"), refused(codes.KeyInvalid), ""},
			ask{request{body: order, keys: []string{"k-1"}, fields: []adapter.Field{{Name: "idempotency-key", Value: "k-2"}}}, refused(codes.KeyInvalid), ""},
			executions(0),
		},
	},
	{
		name:   "key quoted and bare",
		why:    "an RFC 8941 string and a bare token of the same text are one key; the field's name has no case",
		policy: clientKey,
		steps: []step{
			ask{keyed(`"k-1"`), created, ""},
			ask{keyed(`k-1`), replayed, ""},
			ask{request{body: order, fields: []adapter.Field{{Name: "IDEMPOTENCY-KEY", Value: " k-1 "}}}, replayed, ""},
			ask{keyed(`K-1`), created, ""},
		},
	},
	{
		name:   "key under another name",
		why:    "Named: the field may have another name",
		policy: core.Policy{Key: core.Header(core.Required, core.Named("X-Request-Key"))},
		steps: []step{
			ask{keyed("k-1"), refused(codes.KeyMissing), ""},
			ask{request{body: order, fields: []adapter.Field{{Name: "x-request-key", Value: "k-1"}}}, created, ""},
			ask{request{body: order, fields: []adapter.Field{{Name: "X-Request-Key", Value: "k-1"}}}, replayed, ""},
		},
	},
	{
		name:    "key reused",
		why:     "the same client key with other parameters is 422 key_reused, running or done, and the record is unchanged",
		policy:  clientKey,
		handler: held,
		steps: []step{
			begin{"first", keyed("k-1")},
			ask{request{keys: []string{"k-1"}, body: `{"sku":"A-1","quantity":3}`}, refused(codes.KeyReused), ""},
			ask{request{keys: []string{"k-1"}, target: "/orders?express=1", body: order}, refused(codes.KeyReused), ""},
			resume(1),
			await{"first", created},
			ask{request{keys: []string{"k-1"}, body: `{"sku":"A-1","quantity":3}`}, refused(codes.KeyReused), ""},
			ask{keyed("k-1"), replayed, ""},
		},
	},
}
