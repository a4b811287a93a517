package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

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
		why: "the first answer is the handler's, untouched; a duplicate gets the same status, body and stored " +
			"fields, and Idempotent-Replayed: true",
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
		name: "an error format of the service's own",
		why: "one hook replaces the whole answer of a refusal, for services with {code,msg,data}: status, header (in any case) " +
			"and body; the marks of a refusal stay",
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
			ask{anOrder, want{status: 200, kind: custom, fields: []adapter.Field{field(core.RefusedHeader, "key_missing"),
				field("Cache-Control", "no-store"), field("X-Method", "POST"), field("Content-Type", "application/json")}}, ""},
			ask{keyed("k-1"), created, ""},
			ask{keyed("k-1"), replayed, ""},
		},
	},
	{
		name: "a replay in a form of the protocol's own",
		why: "Policy.Replayed replaces the whole answer of a replay: status, header (in any case) and " +
			"body, whatever its length; the mark stays",
		policy: core.Policy{Replayed: remake},
		steps: []step{
			ask{anOrder, created, ""},
			ask{request{body: ` {"quantity":2, "sku":"A-1"}`},
				want{status: 200, kind: remade, absent: []string{"Location"}, fields: []adapter.Field{
					field(core.ReplayedHeader, "true"), field("Content-Type", "application/vnd.replay+json"), field("X-Status", "201")}},
				""},
			ask{request{body: `{"sku":"A-1",   "quantity":2}`, chunked: true},
				want{status: 200, kind: remade, fields: []adapter.Field{field(core.ReplayedHeader, "true")}}, ""},
		},
	},
}

// remake answers with more than was stored, and with what the duplicate has sent.
func remake(_ context.Context, r *core.Request, stored *core.Response) *core.Response {
	body := slices.Concat([]byte(`{"replayed":true,"of":`), stored.Body, []byte(`,"for":`), r.Body, []byte("}"))
	return &core.Response{Status: 200, Header: []core.Field{field("content-type", "application/vnd.replay+json"),
		field("X-Status", strconv.Itoa(stored.Status))}, Body: body}
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
		name:   "key twice",
		why:    "two key fields are 400 key_invalid, also if they are equal; frameworks show the first one only",
		policy: clientKey,
		steps: []step{
			ask{keyed("k-1", "k-2"), refused(codes.KeyInvalid), ""},
			ask{keyed("k-1", "k-1"), refused(codes.KeyInvalid), ""},
			ask{request{body: order, keys: []string{"k-1"}, fields: []adapter.Field{{Name: "idempotency-key", Value: "k-2"}}},
				refused(codes.KeyInvalid), ""},
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
		name:   "a key whose result has expired",
		why:    "Policy.RefuseExpired: after the retention a key is 410 key_expired, whatever the parameters, and then it is forgotten",
		policy: core.Policy{Key: core.Header(core.Required), RefuseExpired: time.Hour},
		steps: []step{
			ask{keyed("k-1"), created, ""},
			ask{keyed("k-1"), replayed, ""},
			passes(24 * time.Hour),
			ask{keyed("k-1"), refused(codes.KeyExpired), ""},
			ask{request{keys: []string{"k-1"}, body: `{"sku":"B-2"}`}, refused(codes.KeyExpired), ""},
			executions(1),
			passes(time.Hour),
			ask{keyed("k-1"), created, ""},
		},
	},
}

// passes moves the store's clock.
type passes time.Duration

func (d passes) do(s *env) { s.store.ahead.Add(int64(d)) }
