package adaptertest

import (
	"bytes"
	"errors"
	"mime/multipart"
	"slices"
	"strings"

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
var tokenCases = slices.Concat(issueCases, useCases)

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
		name:   "a token sent twice",
		why:    "docs/problems.md: 403 token_invalid, as for a key that is sent twice: nobody knows which one is meant, also if they are equal",
		routes: shop(checkoutHere),
		steps: []step{
			issueToken{as: "a"}, issueToken{as: "b"},
			ask{withToken("a", withToken("a", anOrder)), refused(codes.TokenInvalid), ""},
			ask{withToken("a", withToken("b", anOrder)), refused(codes.TokenInvalid), ""},
			ask{withToken("a", request{body: order, fields: []adapter.Field{{Name: strings.ToLower(core.TokenHeader), Value: ""}}}), refused(codes.TokenInvalid), ""},
			ask{form("idempotency_token={a}&idempotency_token={a}"), refused(codes.TokenInvalid), ""},
			ask{posted("/orders?idempotency_token={a}&idempotency_token={a}", order), refused(codes.TokenInvalid), ""},
			executions(0),
			storeNotCalled{},
			ask{withToken("a", anOrder), created, ""},
		},
	},
}
