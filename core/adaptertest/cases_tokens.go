package adaptertest

import (
	"errors"
	"slices"
	"strings"

	"github.com/idem-go/idem/core"
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

const otherOrder = `{"sku":"A-1","quantity":3}`

// tokenCases: one-shot tokens.
var tokenCases = slices.Concat(issueCases, useCases)

// issueCases: how a token is had.
var issueCases = []testCase{
	{
		name: "a token is issued",
		why: "a token is new each time and for its user only: no cache may keep it (RFC 9111, section 5.2.2.5); " +
			"and to issue one writes nothing anywhere",
		routes: append(slices.Clone(shop), route{method: "HEAD", pattern: "/tokens", issues: &checkout},
			route{pattern: "/tokens", issues: &checkout}),
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
		name: "a page with a token",
		why: "a handler that renders a form gets the token as a value, of the caller whose request " +
			"it answers, and the form brings it back",
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
		routes: shop,
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
		name:    "a token for the framework's own user",
		why:     "what authentication middleware has left in the framework's context is whose token it is",
		routes:  append(slices.Clone(shop), route{method: "GET", unguarded: true}),
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
		routes: shop,
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
		name: "tokens under an error middleware",
		why: "who renders errors has none to render when a token is issued or refused; what he renders for the handler " +
			"is a failure, and gives the token back",
		needs:   Features{OuterErrors: true},
		app:     App{Errors: true},
		routes:  shop,
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
		name: "a token in a form",
		why: "a page needs no check: the token is a field of its form, which does not count as a " +
			"parameter, wherever the token comes from",
		routes: shop,
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
}
