package adaptertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"mime/multipart"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// withToken is r with the token called as in the header.
func withToken(as string, r request) request {
	r.fields = append(slices.Clone(r.fields), field(core.TokenHeader, "{"+as+"}"))
	return r
}

// tokenForm is a form with the token called as, and an order.
func tokenForm(as string) request {
	return form(core.TokenField + "={" + as + "}&sku=A-1&quantity=2")
}

// tokenParts is the same, in parts.
func tokenParts(boundary, as string) request {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	// Writing to a buffer cannot fail, and the boundaries are the suite's own.
	_ = w.SetBoundary(boundary)
	for _, p := range []adapter.Pair{{Name: core.TokenField, Value: "{" + as + "}"}, {Name: "sku", Value: "A-1"}, {Name: "quantity", Value: "2"}} {
		_ = w.WriteField(p.Name, p.Value)
	}
	_ = w.Close()
	return request{body: b.String(), media: w.FormDataContentType()}
}

const otherOrder = `{"sku":"A-1","quantity":3}`

// tokenCases: one-shot tokens.
var tokenCases = slices.Concat(issueCases, useCases, oldTokenCases, forgeryCases)

// issueCases: how a token is had.
var issueCases = []testCase{
	{
		name:   "a token is issued",
		why:    "a token is new each time and for its user only: no cache may keep it (RFC 9111, section 5.2.2.5); and to issue one writes nothing anywhere",
		routes: append(shop(checkout), route{method: "HEAD", pattern: "/tokens", issues: &checkout}, route{pattern: "/tokens", issues: &checkout}),
		steps: []step{
			issueToken{as: "a"},
			issueToken{as: "b"},
			issueToken{as: "c", request: request{method: "POST"}},
			ask{request{method: "HEAD", target: "/tokens"}, tokenAnswer, ""},
			executions(0),
			storeNotCalled{},
			ask{withToken("a", anOrder), created, ""},
			ask{withToken("b", anOrder), created, ""},
			ask{withToken("c", anOrder), created, ""},
		},
	},
	{
		name:    "a page with a token",
		why:     "a handler that renders a form gets the token as a value, of the caller whose request it answers, and the form brings it back",
		routes:  []route{{policy: &checkout}, {method: "GET", policy: &checkout}, {method: "GET", pattern: "/checkout", unguarded: true}},
		handler: checkoutPage,
		noBare:  true,
		steps: []step{
			getPage{"a", request{method: "GET", target: "/checkout"}, aPage},
			getPage{"b", request{method: "GET"}, aPage},
			storeNotCalled{},
			ask{tokenForm("a"), created, ""},
			ask{tokenForm("a"), replayed, ""},
			ask{tokenForm("b"), created, ""},
			getPage{"c", request{method: "GET", user: "bob"}, aPage},
			ask{tokenForm("c"), refused(codes.TokenInvalid), ""},
			ask{request{method: "GET", user: "-"}, want{status: 400, kind: passed, body: "user_missing"}, ""},
		},
	},
	{
		name:   "a token in an answer",
		why:    "a handler that is guarded may issue tokens as well, and the request stays whole for it",
		routes: shop(checkout),
		noBare: true,
		handler: func(h *probe, c Call, n int) error {
			if n > 1 {
				return receipt(h, c, n)
			}
			token, err := c.NewToken(h.guard)
			if err != nil {
				return err
			}
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Blob(201, "text/plain", append(body, core.TokenInput(token)...))
		},
		steps: []step{
			issueToken{as: "a"},
			getPage{"b", withToken("a", anOrder), created},
			then(func(s *env) {
				if body := string(s.firsts[0].body); !strings.HasPrefix(body, order) {
					s.Errorf("the handler has read %s", body)
				}
			}),
			ask{withToken("a", anOrder), replayed, ""},
			ask{withToken("b", anOrder), created, ""},
		},
	},
	{
		name:   "a limit to tokens",
		why:    "RFC 6585, section 4: a client that has had too many gets 429 and learns when to ask again; what can't be limited is refused (docs/problems.md)",
		routes: shop(oneShot(core.TokenConfig{Limit: byName}, "checkout")),
		steps: []step{
			issueToken{as: "a"},
			ask{request{method: "GET", target: "/tokens", user: "bob"}, want{status: 429, kind: refusal, code: codes.RateLimited, fields: []adapter.Field{field("Retry-After", "2")}}, ""},
			observed(core.Refused),
			ask{request{method: "GET", target: "/tokens", user: "eve"}, refused(codes.StoreUnavailable), ""},
			issueToken{as: "b"},
			storeNotCalled{},
			ask{withToken("b", anOrder), created, ""},
		},
	},
	{
		name:    "a limit to pages",
		why:     "the handler learns why there is no token, and answers as it likes",
		policy:  oneShot(core.TokenConfig{Limit: byName}, "checkout"),
		global:  true,
		routes:  []route{{method: "GET"}},
		handler: checkoutPage,
		noBare:  true,
		steps: []step{
			getPage{"a", request{method: "GET"}, aPage},
			ask{request{method: "GET", user: "bob"}, want{status: 429, kind: passed, body: "rate_limited"}, ""},
			ask{request{method: "GET", user: "eve"}, want{status: 503, kind: passed, body: "store_unavailable"}, ""},
			storeNotCalled{},
		},
	},
	{
		name:   "no user for a token",
		why:    "a permit for nobody is one for everybody: who does not say who he is gets none, and can use none",
		routes: shop(checkout),
		steps: []step{
			ask{request{method: "GET", target: "/tokens", user: "-"}, refused(codes.UserMissing), ""},
			issueToken{as: "a"},
			ask{withToken("a", request{user: "-", body: order}), refused(codes.UserMissing), ""},
			executions(0),
			storeNotCalled{},
		},
	},
	{
		name:    "a token for the framework's own user",
		why:     "what authentication middleware has left in the framework's context is whose token it is",
		routes:  append(shop(checkout), route{method: "GET", unguarded: true}),
		native:  true,
		app:     App{Login: true},
		handler: checkoutPage,
		noBare:  true,
		steps: []step{
			issueToken{as: "a", request: as("ada", request{})},
			getPage{"b", as("ada", request{method: "GET"}), aPage},
			ask{withToken("a", as("eve", anOrder)), refused(codes.TokenInvalid), ""},
			ask{withToken("b", as("eve", anOrder)), refused(codes.TokenInvalid), ""},
			ask{withToken("a", as("ada", anOrder)), created, ""},
			ask{withToken("b", as("ada", anOrder)), created, ""},
			ask{withToken("b", as("ada", anOrder)), replayed, ""},
			ask{request{method: "GET", target: "/tokens"}, refused(codes.UserMissing), ""},
		},
	},
	{
		name:    "a token for a verified caller",
		why:     "whom a middleware in front has verified is whose token it is, and not who says to have that name",
		routes:  append(shop(checkout), route{method: "GET", unguarded: true}),
		app:     App{Consumed: []string{}},
		handler: checkoutPage,
		noBare:  true,
		steps: []step{
			issueToken{as: "a", request: verified("k1", request{})},
			getPage{"b", verified("k1", request{method: "GET"}), aPage},
			ask{withToken("a", verified("k2", anOrder)), refused(codes.TokenInvalid), ""},
			ask{withToken("b", verified("k2", anOrder)), refused(codes.TokenInvalid), ""},
			ask{withToken("b", request{user: "k1", body: order}), refused(codes.TokenInvalid), ""},
			ask{withToken("a", verified("k1", anOrder)), created, ""},
			ask{withToken("b", verified("k1", anOrder)), created, ""},
			ask{withToken("b", verified("k1", anOrder)), replayed, ""},
		},
	},
	{
		name:   "tokens over one connection",
		why:    "every string of a Fiber context is used again: a token, too, must stay that of the caller that asked for it",
		routes: shop(checkout),
		steps: []step{
			issueToken{"a", request{}, "kept"},
			issueToken{"b", request{user: "bobby"}, "kept"},
			issueToken{"c", request{user: "carol"}, "kept"},
			ask{withToken("a", request{user: "bobby", body: order}), refused(codes.TokenInvalid), "kept"},
			ask{withToken("a", anOrder), created, "kept"},
			ask{withToken("b", request{user: "bobby", body: order}), created, "kept"},
			ask{withToken("c", request{user: "carol", body: order}), created, "kept"},
			ask{withToken("b", request{user: "bobby", body: order}), replayed.of(1), "kept"},
			ask{withToken("a", anOrder), replayed.of(2), "kept"},
		},
	},
	{
		name:   "tokens issued behind a guard",
		why:    "a guard in front of all routes lets those that issue pass, for their method is safe (RFC 9110, section 9.2.1)",
		policy: checkout,
		global: true,
		routes: []route{{}, {method: "GET", pattern: "/tokens", issues: &checkout}},
		steps: []step{
			issueToken{as: "a"},
			storeNotCalled{},
			ask{withToken("a", anOrder), created, ""},
			ask{withToken("a", anOrder), replayed, ""},
		},
	},
	{
		name:    "tokens under an error middleware",
		why:     "who renders errors has none to render when a token is issued or refused; what he renders for the handler is a failure, and gives the token back",
		needs:   Features{OuterErrors: true},
		app:     App{Errors: true},
		routes:  shop(checkout),
		handler: firstFails,
		steps: []step{
			issueToken{as: "a"},
			ask{request{method: "GET", target: "/tokens", user: "-"}, refused(codes.UserMissing), ""},
			ask{anOrder, refused(codes.TokenMissing), ""},
			ask{withToken("a", posted("/orders?status=422", order)), failed(422), ""},
			ask{withToken("a", posted("/orders?status=422", otherOrder)), created, ""},
			ask{withToken("a", posted("/orders?status=422", otherOrder)), replayed, ""},
		},
	},
}

// checkoutPage is a page with a form where nothing runs, and else a receipt.
func checkoutPage(h *probe, c Call, n int) error {
	if c.Run() != nil {
		return receipt(h, c, n)
	}
	token, err := c.NewToken(h.guard)
	if refused := (*core.Refusal)(nil); errors.As(err, &refused) {
		return c.Blob(refused.Status, "text/plain", []byte(refused.Code))
	}
	if err != nil {
		return err
	}
	c.SetHeader("Cache-Control", "no-store")
	return c.Blob(200, "text/html; charset=utf-8", []byte(`<form method="post">`+core.TokenInput(token)+`</form>`))
}

// as is r of who is logged in.
func as(login string, r request) request {
	r.user, r.fields = "-", append(slices.Clone(r.fields), field("X-Login", login))
	return r
}

// verified is r of a caller whom a middleware in front has verified.
func verified(caller string, r request) request {
	r.user, r.fields = "-", append(slices.Clone(r.fields), field("X-Caller", caller))
	return r
}

// useCases: what a token is good for.
var useCases = []testCase{
	{
		name:   "a token in a form",
		why:    "a page needs no check: the token is a field of its form, which does not count as a parameter, wherever the token comes from",
		routes: shop(checkout),
		steps: []step{
			issueToken{as: "a"},
			ask{tokenForm("a"), created, ""},
			ask{tokenForm("a"), replayed, ""},
			ask{chunked(tokenForm("a")), replayed, ""},
			ask{form("quantity=2&sku=A-1&idempotency%5Ftoken={a}"), replayed, ""},
			ask{request{body: tokenForm("a").body, media: "application/x-www-form-urlencoded;charset=UTF-8"}, replayed, ""},
			ask{withToken("a", form("sku=A-1&quantity=2")), replayed, ""},
			ask{form("idempotency_token={a}&sku=A-1&quantity=3"), refused(codes.KeyReused), ""},
			ask{tokenForm("a"), replayed, ""},
		},
	},
	{
		name:   "a token in a form of parts",
		why:    "the same for multipart/form-data (RFC 7578)",
		routes: shop(checkout),
		steps: []step{
			issueToken{as: "a"},
			ask{tokenParts("b-1", "a"), created, ""},
			ask{tokenParts("b-2", "a"), replayed, ""},
			ask{chunked(tokenParts("b-1", "a")), replayed, ""},
			ask{tokenForm("a"), replayed, ""}, // the same pairs
			ask{form("idempotency_token={a}&sku=B-2"), refused(codes.KeyReused), ""},
		},
	},
	{
		name:   "a token in a form that was read in front",
		why:    "a form that somebody in front has read is taken from what was parsed, with its token",
		needs:  Features{Front: []Front{FormReader}},
		app:    App{Front: []Front{FormReader}},
		routes: shop(checkout),
		steps: []step{
			issueToken{as: "a"},
			ask{tokenForm("a"), created, ""},
			ask{tokenForm("a"), replayed, ""},
			ask{chunked(tokenForm("a")), replayed, ""},
			ask{unread(tokenForm("a")), replayed, ""},
			ask{form("idempotency_token={a}&sku=B-2"), refused(codes.KeyReused), ""},
			issueToken{as: "b"},
			ask{tokenParts("b-1", "b"), created, ""},
			ask{chunked(tokenParts("b-1", "b")), replayed, ""},
			ask{unread(tokenParts("b-1", "b")), replayed, ""},
			ask{form("sku=A-1&quantity=2"), refused(codes.TokenMissing), ""},
		},
	},
	{
		name:   "a token in the query",
		why:    "a query stands in logs, in histories and in Referer fields: a token is not read from there, unless the service wants it",
		routes: append(shop(checkout), route{pattern: "/here", policy: &checkoutHere}),
		steps: []step{
			issueToken{as: "a"},
			ask{posted("/orders?idempotency_token={a}", order), refused(codes.TokenMissing), ""},
			storeNotCalled{},
			ask{posted("/here?x=1&idempotency_token={a}", order), created, ""},
			ask{posted("/here?idempotency_token={a}&x=1", order), replayed, ""},
			ask{withToken("a", posted("/here?x=1", order)), replayed, ""},
			ask{posted("/here?x=2&idempotency_token={a}", order), refused(codes.KeyReused), ""},
		},
	},
	{
		name:   "tokens in several places",
		why:    "header before form before query; what is there is the token, and a bad one is not passed over for another",
		routes: shop(checkoutHere),
		steps: []step{
			issueToken{as: "a"}, issueToken{as: "b"}, issueToken{as: "c"},
			ask{at("/orders?idempotency_token={c}", withToken("a", tokenForm("b"))), created, ""},
			ask{at("/orders?idempotency_token={c}", tokenForm("b")), created, ""},
			ask{at("/orders?idempotency_token={c}", form("sku=A-1&quantity=2")), created, ""},
			issueToken{as: "d"},
			ask{request{body: tokenForm("d").body, media: tokenForm("d").media, fields: []adapter.Field{field(core.TokenHeader, "")}}, created, ""}, // an empty field is none
			issueToken{as: "e"},
			ask{withToken("x", tokenForm("e")), refused(codes.TokenInvalid), ""}, // nothing is called x
			ask{at("/orders?idempotency_token={e}", tokenForm("x")), refused(codes.TokenInvalid), ""},
			ask{at("/orders?idempotency_token={e}", form("idempotency_token=&sku=A-1")), refused(codes.TokenMissing), ""},
			ask{tokenForm("e"), created, ""},
		},
	},
	{
		name:   "no token",
		why:    "docs/problems.md: 400 token_missing, and nothing is recorded; a member of JSON, text that reads like a form, a cookie, and a name in other letters are none",
		routes: shop(checkout),
		steps: []step{
			issueToken{as: "a"},
			ask{request{}, refused(codes.TokenMissing), ""},
			ask{anOrder, refused(codes.TokenMissing), ""},
			ask{form("sku=A-1"), refused(codes.TokenMissing), ""},
			ask{form("idempotency_token=&sku=A-1"), refused(codes.TokenMissing), ""},
			ask{form("Idempotency_Token={a}&idempotency-token={a}&idempotency_token[]={a}"), refused(codes.TokenMissing), ""},
			ask{posted("", `{"idempotency_token":"{a}"}`), refused(codes.TokenMissing), ""},
			ask{request{body: "idempotency_token={a}", media: "text/plain"}, refused(codes.TokenMissing), ""},
			ask{request{body: "idempotency_token={a}", media: "-"}, refused(codes.TokenMissing), ""},
			ask{request{body: order, fields: []adapter.Field{field("Cookie", "idempotency_token={a}")}}, refused(codes.TokenMissing), ""},
			ask{request{body: order, fields: []adapter.Field{field(core.TokenHeader, "")}}, refused(codes.TokenMissing), ""},
			ask{withKey(anOrder, "{a}"), refused(codes.TokenMissing), ""},
			executions(0),
			storeNotCalled{},
		},
	},
	{
		name:   "a token in a compressed form",
		why:    "a body with a Content-Encoding counts by its raw bytes, in which no token stands; one in the header is as good as ever",
		routes: shop(checkout),
		loose:  true, // the compressed token is another one each time
		steps: []step{
			issueToken{as: "a"},
			then(func(s *env) {
				s.Helper()
				r := compressed(s.filled(tokenForm("a")))
				ask{r, refused(codes.TokenMissing), ""}.do(s)
				storeNotCalled{}.do(s)
				ask{withToken("a", r), created, ""}.do(s)
				ask{withToken("a", r), replayed, ""}.do(s)
				ask{withToken("a", compressed(form("sku=B-2"))), refused(codes.KeyReused), ""}.do(s)
				ask{tokenForm("a"), refused(codes.KeyReused), ""}.do(s)
			}),
		},
	},
	{
		name:   "a receipt",
		why:    "RFC 9110, section 15.4.4: after a form comes 303 to its receipt; who submits again, by a double click, a reload or the back button, lands on the same one",
		routes: shop(checkout),
		handler: func(_ *probe, c Call, n int) error {
			c.SetHeader("Location", fmt.Sprintf("/receipts/%d", n))
			return c.NoContent(303)
		},
		steps: []step{
			issueToken{as: "a"},
			ask{tokenForm("a"), want{status: 303, fields: []adapter.Field{field("Location", "/receipts/1")}}, ""},
			ask{tokenForm("a"), want{status: 303, kind: replay, fields: []adapter.Field{field("Location", "/receipts/1")}}, ""},
			issueToken{as: "b"},
			ask{tokenForm("b"), want{status: 303, fields: []adapter.Field{field("Location", "/receipts/2")}}, ""},
			ask{tokenForm("a"), want{status: 303, kind: replay, fields: []adapter.Field{field("Location", "/receipts/1")}}.of(1), ""},
		},
	},
	{
		name:    "a used token with another form",
		why:     "docs/problems.md: a token is for one thing: with other parameters, or on another route, 422 key_reused, running, done or abandoned, and the record is unchanged",
		routes:  append(shop(checkout), route{pattern: "/refunds", policy: &checkout}, route{method: "PUT", policy: &checkout}, route{pattern: "/orders/:id", policy: &checkout}),
		handler: held,
		steps: []step{
			issueToken{as: "a"},
			begin{"first", withToken("a", at("/orders/7", anOrder))},
			ask{withToken("a", at("/orders/7", posted("", otherOrder))), refused(codes.KeyReused), ""},
			ask{withToken("a", at("/orders/8", anOrder)), refused(codes.KeyReused), ""},
			resume(1),
			await{"first", created},
			ask{withToken("a", posted("/orders/7", otherOrder)), refused(codes.KeyReused), ""},
			ask{withToken("a", at("/orders/8", anOrder)), refused(codes.KeyReused), ""},
			ask{withToken("a", at("/orders/7?x=1", anOrder)), refused(codes.KeyReused), ""},
			ask{withToken("a", at("/orders", anOrder)), refused(codes.KeyReused), ""},
			ask{withToken("a", at("/refunds", anOrder)), refused(codes.KeyReused), ""},
			ask{withToken("a", request{method: "PUT", body: order}), refused(codes.KeyReused), ""},
			ask{withToken("a", at("/orders/7", anOrder)), replayed, ""},
			issueToken{as: "b"},
			begin{"crashed", withToken("b", anOrder)},
			later(31 * time.Second),
			ask{withToken("b", posted("", otherOrder)), refused(codes.KeyReused), ""},
			resume(1),
			await{"crashed", created},
			executions(2),
		},
	},
	{
		name:   "a token is given back",
		why:    "a user without another token must be able to correct the form: any answer of 400 and above gives the token back, and the next try may be another form",
		routes: shop(checkout),
		handler: func(h *probe, c Call, n int) error {
			switch n {
			case 1:
				return c.Blob(422, "text/plain", []byte("the quantity is missing"))
			case 2:
				return c.Blob(402, "text/plain", []byte("the balance is too low"))
			case 3:
				return c.Blob(503, "text/plain", []byte("try again"))
			}
			return receipt(h, c, n)
		},
		steps: []step{
			issueToken{as: "a"},
			ask{form("idempotency_token={a}&sku=A-1"), failed(422), ""},
			ask{tokenForm("a"), failed(402), ""},
			records(0),
			ask{tokenForm("a"), failed(503), ""},
			ask{tokenForm("a"), created, ""},
			ask{tokenForm("a"), replayed, ""},
			ask{form("idempotency_token={a}&sku=A-1"), refused(codes.KeyReused), ""},
		},
	},
	{
		name:    "a token under Reject",
		why:     "under Reject a used token gets 409 in_progress, then 409 duplicate, and never the response",
		routes:  shop(rejecting(checkout)),
		handler: held,
		steps: []step{
			issueToken{as: "a"},
			begin{"first", tokenForm("a")},
			ask{tokenForm("a"), refused(codes.InProgress), ""},
			resume(1),
			await{"first", created},
			ask{tokenForm("a"), refused(codes.Duplicate), ""},
		},
	},
	{
		name:    "waiting for a token's run",
		why:     "who clicks twice waits for the first click's answer, and gets it",
		routes:  shop(waitingFor(checkout)),
		handler: held,
		steps: []step{
			issueToken{as: "a"},
			begin{"first", tokenForm("a")},
			send{"second", tokenForm("a")}, called{"watch", 1},
			send{"third", withToken("a", form("quantity=2&sku=A-1"))}, called{"acquire", 3},
			resume(1),
			await{"first", created},
			await{"second", replayed},
			await{"third", replayed},
			executions(1),
		},
	},
	{
		name:   "100 uses of one token, replayed",
		why:    "a token works once: of any number of uses at the same time one runs",
		routes: shop(checkout),
		steps: []step{
			issueToken{as: "a"},
			atOnce{request: tokenForm("a"), size: 100, refusals: true},
			ask{tokenForm("a"), replayed, ""},
			executions(1),
		},
	},
	{
		name:   "100 uses of one token, waiting",
		why:    "the same with Wait: all get the one answer",
		routes: shop(waitingFor(checkout)),
		steps: []step{
			issueToken{as: "a"},
			atOnce{request: withToken("a", anOrder), size: 100},
			executions(1),
		},
	},
	{
		name:   "safe methods use no token",
		why:    "RFC 9110, section 9.2.1: a link that is followed, or fetched in advance, must not use a token up",
		routes: []route{{policy: &checkout}, {method: "GET", policy: &checkout}, {method: "HEAD", policy: &checkout}, {method: "OPTIONS", policy: &checkout}, {method: "GET", pattern: "/tokens", issues: &checkout}},
		steps: []step{
			issueToken{as: "a"},
			ask{withToken("a", request{method: "GET"}), want{status: 201, kind: passed}, ""},
			ask{withToken("a", request{method: "HEAD"}), want{status: 201, kind: passed}, ""},
			ask{withToken("a", request{method: "OPTIONS"}), want{status: 201, kind: passed}, ""},
			storeNotCalled{},
			ask{withToken("a", request{}), created, ""},
		},
	},
	{
		name:   "a token, and the store fails",
		why:    "docs/problems.md: 503 store_unavailable, and the token is as good as before",
		routes: shop(checkout),
		steps: []step{
			fail("acquire", "release"),
			issueToken{as: "a"}, // it needs no store
			ask{tokenForm("a"), refused(codes.StoreUnavailable), ""},
			executions(0),
			fail(),
			ask{tokenForm("a"), created, ""},
		},
	},
	{
		name:   "a page for a browser",
		why:    "people read pages: Config.Refuse makes one of any refusal, and links a used token's to the receipt; programs get their problem as ever",
		routes: shop(oneShot(core.TokenConfig{Limit: byName}, "checkout")),
		config: func(c *core.Config) { c.Refuse = refusalPage },
		handler: func(h *probe, c Call, n int) error {
			h.hold()
			return receipt(h, c, n)
		},
		steps: []step{
			issueToken{as: "a"},
			begin{"first", tokenForm("a")},
			ask{browsing(form("idempotency_token={a}&sku=B-2")), page(422, codes.KeyReused, ""), ""},
			resume(1),
			await{"first", created},
			ask{browsing(form("idempotency_token={a}&sku=B-2")), page(422, codes.KeyReused, "/orders/1"), ""},
			ask{form("idempotency_token={a}&sku=B-2"), refused(codes.KeyReused), ""},
			ask{browsing(form("sku=B-2")), page(400, codes.TokenMissing, ""), ""},
			ask{browsing(form("idempotency_token=x&sku=B-2")), page(403, codes.TokenInvalid, ""), ""},
			issueToken{as: "b"}, expireToken{"old", "b"},
			ask{browsing(tokenForm("old")), page(410, codes.TokenExpired, ""), ""},
			ask{browsing(request{method: "GET", target: "/tokens", user: "bob"}), page(429, codes.RateLimited, ""), ""},
			ask{tokenForm("a"), replayed, ""},
		},
	},
	{
		name:   "a receipt that may not be shown",
		why:    "Policy.Authorize decides about the link to a receipt as it does about the receipt",
		routes: shop(authorized(checkout)),
		config: func(c *core.Config) { c.Refuse = refusalPage },
		steps: []step{
			issueToken{as: "a"},
			ask{tokenForm("a"), created, ""},
			ask{browsing(form("idempotency_token={a}&sku=B-2")), page(422, codes.KeyReused, "/orders/1"), ""},
			ask{withdrawn(browsing(form("idempotency_token={a}&sku=B-2"))), page(422, codes.KeyReused, ""), ""},
			ask{withdrawn(browsing(tokenForm("a"))), page(403, codes.NotAuthorized, ""), ""},
		},
	},
}

func rejecting(p core.Policy) core.Policy { p.Duplicate = core.Reject(""); return p }

func waitingFor(p core.Policy) core.Policy { p.Duplicate = core.Wait(patience); return p }

func authorized(p core.Policy) core.Policy { p.Authorize = authorizeByHeader; return p }

func withdrawn(r request) request {
	r.fields = append(slices.Clone(r.fields), field("X-Withdrawn", "1"))
	return r
}

// browsing is r as a browser sends it.
func browsing(r request) request {
	r.fields = append(slices.Clone(r.fields), field("Accept", "text/html,application/xhtml+xml,*/*;q=0.8"))
	return r
}

// refusalPage makes a page of a refusal, for a browser.
func refusalPage(_ context.Context, r *core.Refusal) *adapter.Response {
	if accept, _ := r.Request.Headers.Header("Accept", 0); !strings.HasPrefix(accept, "text/html") {
		return nil
	}
	receipt := ""
	if r.Stored != nil {
		receipt = r.Stored.Get("Location")
	}
	return &adapter.Response{Status: r.Status, Header: []adapter.Field{field("Content-Type", "text/html; charset=utf-8")}, Body: []byte(pageText(r.Code, receipt))}
}

func pageText(code codes.Code, receipt string) string {
	text := "<h1>" + string(code) + "</h1>"
	if receipt != "" {
		text += `<a href="` + template.HTMLEscapeString(receipt) + `">your receipt</a>`
	}
	return text
}

// page wants what refusalPage makes.
func page(status int, code codes.Code, receipt string) want {
	return want{status: status, kind: custom, body: pageText(code, receipt), fields: []adapter.Field{
		field("Content-Type", "text/html; charset=utf-8"), field("Cache-Control", "no-store"), field(core.RefusedHeader, string(code))}}
}

// oldTokenCases: tokens whose time has passed.
var oldTokenCases = []testCase{
	{
		name:   "a token too old for a first use",
		why:    "docs/problems.md: 410 token_expired; nothing runs, and nothing is left in the store",
		routes: append(shop(checkout), route{method: "GET", pattern: "/old", issues: &checkoutBriefly}),
		steps: []step{
			issueToken{as: "a", request: request{target: "/old"}},
			ask{tokenForm("a"), refused(codes.TokenExpired), ""},
			records(0),
			ask{withToken("a", anOrder), refused(codes.TokenExpired), ""}, // another form
			ask{withToken("a", anOrder), refused(codes.TokenExpired), ""},
			records(0),
			executions(0),
		},
	},
	{
		name:    "a token grown too old after its use",
		why:     "who submits again after six minutes gets the receipt: a token's time is that of its first use",
		routes:  shop(checkout),
		handler: held,
		steps: []step{
			issueToken{as: "a"},
			begin{"first", tokenForm("a")},
			expireToken{"old", "a"},
			ask{tokenForm("old"), refused(codes.InProgress), ""},
			ask{form("idempotency_token={old}&sku=B-2"), refused(codes.KeyReused), ""},
			resume(1),
			await{"first", created},
			ask{tokenForm("old"), replayed, ""},
			ask{withToken("old", form("sku=A-1&quantity=2")), replayed, ""},
			ask{form("idempotency_token={old}&sku=B-2"), refused(codes.KeyReused), ""},
			ask{tokenForm("a"), replayed, ""},
			records(1),
		},
	},
	{
		name:    "a token grown too old after it was given back",
		why:     "what was given back has not been used: the next use is the first one",
		routes:  shop(checkout),
		handler: byStatus,
		steps: []step{
			issueToken{as: "a"},
			ask{at("/orders?status=422", tokenForm("a")), failed(422), ""},
			expireToken{"old", "a"},
			ask{at("/orders?status=201", tokenForm("old")), refused(codes.TokenExpired), ""},
			records(0),
			executions(1),
		},
	},
	{
		name:    "a token grown too old while its run crashed",
		why:     "a run that was begun in time is taken over, however late, with the same form only",
		routes:  shop(checkout),
		handler: reportRun,
		noBare:  true,
		steps: []step{
			issueToken{as: "a"},
			begin{"first", tokenForm("a")},
			later(31 * time.Second),
			expireToken{"old", "a"},
			ask{form("idempotency_token={old}&sku=B-2"), refused(codes.KeyReused), ""},
			ask{tokenForm("old"), ok, ""},
			resume(1),
			await{"first", ok},
			ask{tokenForm("old"), want{status: 200, kind: replay}.of(1), ""},
			observed(core.RunLost),
		},
	},
	{
		name:    "a token grown too old while its outcome is uncertain",
		why:     "docs/problems.md: 409 uncertain: that the token is too old decides nothing",
		routes:  shop(uncertain(checkout)),
		handler: held,
		steps: []step{
			issueToken{as: "a"},
			begin{"first", tokenForm("a")},
			later(31 * time.Second),
			expireToken{"old", "a"},
			ask{tokenForm("old"), refused(codes.Uncertain), ""},
			resume(1),
			await{"first", created},
			ask{tokenForm("old"), replayed, ""},
		},
	},
	{
		name:   "a token grown too old while its user waits",
		why:    "a duplicate that has waited for a run that failed does not run in its place if the token is too old by then",
		routes: shop(waitingFor(checkout)),
		handler: func(h *probe, c Call, n int) error {
			h.hold()
			return c.Blob(503, "text/plain", []byte("try again"))
		},
		steps: []step{
			issueToken{as: "a"},
			begin{"first", tokenForm("a")},
			expireToken{"old", "a"},
			send{"second", tokenForm("old")}, called{"watch", 1},
			resume(1),
			await{"first", failed(503)},
			await{"second", refused(codes.TokenExpired)},
			records(0),
			executions(1),
		},
	},
	{
		name:   "a token too old, and no store",
		why:    "a policy that fails open runs what it can't protect; but of a token that is too old nobody knows then whether it may run at all",
		routes: shop(failingOpen(checkout)),
		steps: []step{
			issueToken{as: "a"},
			expireToken{"old", "a"},
			fail("acquire"),
			ask{tokenForm("a"), want{status: 201, kind: passed}, ""},
			ask{tokenForm("old"), refused(codes.StoreUnavailable), ""},
			executions(1),
		},
	},
}

// checkoutBriefly issues what is too old when it arrives.
var checkoutBriefly = oneShot(core.TokenConfig{Lifetime: time.Nanosecond}, "checkout")

func uncertain(p core.Policy) core.Policy { p.Abandoned = core.Uncertain(nil); return p }

func failingOpen(p core.Policy) core.Policy { p.FailOpen = true; return p }

// forgeryCases: tokens that are none.
var forgeryCases = []testCase{
	{
		name: "tokens as they are documented",
		why: "the form of tokens is a promise: processes of different versions check each other's; the user stands in the HMAC as in a " +
			"key, escaped, or hashed if it is long",
		routes: shop(checkout),
		steps: []step{
			makeToken{"a", tokenFields{time.Time{}, [16]byte{1}, "alice", "checkout"}},
			ask{tokenForm("a"), created, ""},
			ask{tokenForm("a"), replayed, ""},
			makeToken{"b", tokenFields{time.Time{}, [16]byte{2}, "ann%20%23smith", "checkout"}},
			ask{fromUser("ann #smith", tokenForm("b")), created, ""},
			makeToken{"c", tokenFields{time.Time{}, [16]byte{3}, "#" + hashed(longUser), "checkout"}},
			ask{fromUser(longUser, tokenForm("c")), created, ""},
		},
	},
	{
		name: "secrets that are rotated",
		why:  "the first secret issues and all of them check: so tokens survive a new secret until the old one is taken away",
		routes: []route{
			{policy: &checkout},
			{pattern: "/rotated", policy: rotated(otherSecret, tokenSecret)},
			{pattern: "/after", policy: rotated(otherSecret)},
			{method: "GET", pattern: "/tokens", issues: &checkout},
			{method: "GET", pattern: "/rotated", issues: rotated(otherSecret, tokenSecret)},
		},
		steps: []step{
			issueToken{as: "old"},
			issueToken{as: "new", request: request{target: "/rotated"}},
			ask{at("/after", tokenForm("old")), refused(codes.TokenInvalid), ""},
			ask{tokenForm("new"), refused(codes.TokenInvalid), ""},
			storeNotCalled{},
			ask{at("/rotated", tokenForm("old")), created, ""},
			ask{at("/rotated", tokenForm("new")), created, ""},
			ask{at("/rotated", tokenForm("new")), replayed, ""},
		},
	},
	{
		name:   "a token sent twice",
		why:    "docs/problems.md: 403 token_invalid, as for a key that is sent twice: nobody knows which one is meant, also if they are equal",
		routes: shop(checkoutHere),
		steps: []step{
			issueToken{as: "a"}, issueToken{as: "b"},
			ask{withToken("a", withToken("a", anOrder)), refused(codes.TokenInvalid), ""},
			ask{withToken("a", withToken("b", anOrder)), refused(codes.TokenInvalid), ""},
			ask{withToken("a", request{body: order, fields: []adapter.Field{{Name: strings.ToLower(core.TokenHeader), Value: ""}}}), refused(codes.TokenInvalid), ""},
			ask{request{body: order, fields: []adapter.Field{field(core.TokenHeader, "{a}, {a}")}}, refused(codes.TokenInvalid), ""},
			ask{form("idempotency_token={a}&idempotency_token={a}"), refused(codes.TokenInvalid), ""},
			ask{form("idempotency_token={a}&sku=A-1&idempotency_token={b}"), refused(codes.TokenInvalid), ""},
			ask{form("idempotency_token={a}&idempotency_token="), refused(codes.TokenInvalid), ""},
			ask{twoParts("", ""), refused(codes.TokenInvalid), ""},
			ask{twoParts("", `; filename="token"`), refused(codes.TokenInvalid), ""},
			ask{posted("/orders?idempotency_token={a}&idempotency_token={a}", order), refused(codes.TokenInvalid), ""},
			executions(0),
			storeNotCalled{},
			ask{withToken("a", anOrder), created, ""},
			ask{withToken("b", anOrder), created, ""},
		},
	},
	{
		name:   "a file for a token",
		why:    "a file is no field, whatever it is called, and what is in it is no token",
		routes: shop(checkout),
		steps: []step{
			issueToken{as: "a"},
			ask{fileForToken(), refused(codes.TokenInvalid), ""},
			storeNotCalled{},
			ask{withToken("a", fileForToken()), created, ""},
		},
	},
	{
		name:   "forged tokens",
		why:    "docs/problems.md: 403 token_invalid, before anything is recorded, for whatever was not issued to this caller for this purpose, byte for byte",
		routes: shop(checkoutHere),
		loose:  true, // it would be long
		steps: []step{
			then(forgeTokens),
			executions(0),
			storeNotCalled{},
			then(func(s *env) { s.name("a", victim().token(tokenSecret)) }),
			ask{tokenForm("a"), created, ""}, // nobody has used it up
		},
	},
}

func fromUser(user string, r request) request { r.user = user; return r }

var longUser = strings.Repeat("long ", 20) + "."

func hashed(user string) string {
	sum := sha256.Sum256([]byte(user))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func rotated(secrets ...[]byte) *core.Policy {
	p := oneShot(core.TokenConfig{Secrets: secrets}, "checkout")
	return &p
}

// twoParts is a form in which two parts are called like the token's field; more stands behind the names.
func twoParts(first, second string) request {
	body := ""
	for _, more := range []string{first, second} {
		body += "--b-1\r\nContent-Disposition: form-data; name=\"" + core.TokenField + "\"" + more + "\r\n\r\n{a}\r\n"
	}
	return request{body: body + "--b-1--\r\n", media: "multipart/form-data; boundary=b-1"}
}

func fileForToken() request {
	return request{
		body:  "--b-1\r\nContent-Disposition: form-data; name=\"" + core.TokenField + "\"; filename=\"token\"\r\n\r\n{a}\r\n--b-1--\r\n",
		media: "multipart/form-data; boundary=b-1",
	}
}
