package shop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

func TestWhoPrefersHTML(t *testing.T) {
	for accept, html := range map[string]bool{
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8": true, // Chromium
		"text/html": true, "TEXT/HTML;level=1": true, "application/xhtml+xml": true,
		"application/json;q=0.5, text/html": true, "text/html;q=0.8, */*": true,
		"": false, "*/*": false, "application/json": false, "text/*": false, "text/html;q=0": false,
		"text/html;q=0.5, application/json": false, "text/html;q=0.5, application/problem+json;q=0.6": false, "text/htmlx": false,
	} {
		require.Equal(t, html, prefersHTML(accept), accept)
	}
}

func TestSessions(t *testing.T) {
	header := func(h http.Header) func(string) string { return h.Get }
	cookie := NewSession(header(http.Header{}))
	require.True(t, cookie.HttpOnly)
	require.Regexp(t, sessionID, cookie.Value)
	require.NotEqual(t, cookie.Value, NewSession(header(http.Header{})).Value)

	known := http.Header{"Cookie": {"a=b; " + cookie.Name + "=" + cookie.Value}}
	require.Nil(t, NewSession(header(known)))
	require.Equal(t, "session "+cookie.Value, User(header(known)))
	known.Set("X-User", "ann")
	require.Equal(t, "ann", User(header(known)), "who is logged in is no visitor")

	for _, forged := range []string{"", "ann", strings.ToLower(cookie.Value), cookie.Value + "A", "session " + cookie.Value} {
		h := http.Header{"Cookie": {cookie.Name + "=" + forged}}
		require.Empty(t, User(header(h)), forged)
		require.NotNil(t, NewSession(header(h)))
	}
}

// filled is the form as it was sent.
func filled() form {
	values := url.Values{"idempotency_token": {"t1.old"}, "name": {`Ann <b>"O'Hara"</b>`}, "tea": {"Sencha"}, "tins": {"2"}, "card": {"77"}}
	return readForm("application/x-www-form-urlencoded; charset=utf-8", []byte(values.Encode()))
}

func TestWhatWasTypedIsKept(t *testing.T) {
	const typed = `value="Ann &lt;b&gt;&#34;O&#39;Hara&#34;&lt;/b&gt;"`
	for _, c := range []struct {
		code         codes.Code
		token, title string
		status       int
	}{
		{codes.TokenExpired, "t1.new", "This form was open for too long", 410},
		{codes.TokenInvalid, "t1.new", "This form belongs to another session", 403},
		{codes.TokenMissing, "t1.new", "Please send the form once more", 400},
		{codes.InProgress, "t1.old", "Your order is on its way", 409},
		{codes.StoreUnavailable, "t1.old", "The shop is busy", 503},
		{codes.ShuttingDown, "t1.old", "The shop is busy", 503},
	} {
		reply := checkoutRefusal(core.NewRefusal(c.code, nil), filled(), func() (string, error) { return "t1.new", nil })
		body := string(reply.Body)
		require.Equal(t, c.status, reply.Status, c.code)
		require.Contains(t, body, "<title>"+c.title+" –", c.code)
		require.Contains(t, body, `value="`+c.token+`"`, c.code)
		require.Contains(t, body, typed, c.code)
		require.Contains(t, body, `<form method="post" action="/checkout?send"`, c.code)
		require.Contains(t, body, "autofocus", c.code)
		require.Equal(t, c.status == 409, strings.Contains(body, `class="notice calm"`), "nothing is wrong: %s", c.code)
	}
}

func TestAUsedTokenLeadsToItsReceipt(t *testing.T) {
	r := core.NewRefusal(codes.KeyReused, nil)
	page := string(checkoutRefusal(r, filled(), nil).Body)
	require.NotContains(t, page, "/receipts/", "it is not known")
	require.NotContains(t, page, "Ann", "nothing is to be sent again")

	r.Stored = &core.Response{Status: 303, Header: []core.Field{{Name: "Location", Value: "/receipts/rcp_1"}}}
	page = string(checkoutRefusal(r, filled(), nil).Body)
	require.Contains(t, page, `<a href="/receipts/rcp_1">See the receipt</a>`)
	require.Contains(t, page, `class="notice calm" role="status"`, "nothing is wrong")
}

func TestRefusalsOfOtherKinds(t *testing.T) {
	reply := checkoutRefusal(core.NewRefusal(codes.BodyTooLarge, nil), form{}, nil)
	require.Equal(t, 413, reply.Status)
	require.Contains(t, string(reply.Body), "The request body is over the limit.")

	// A form for which there is no token.
	s := newShop(t)
	get := func(accept string, err error) (*Reply, error) {
		return s.CheckoutForm("", err)(t.Context(), request("", "Accept", accept))
	}
	for accept, contentType := range map[string]string{"text/html": "text/html; charset=utf-8", "*/*": "application/problem+json"} {
		reply, err := get(accept, core.NewRefusal(codes.StoreUnavailable, nil))
		require.NoError(t, err)
		require.Equal(t, 503, reply.Status)
		require.Equal(t, contentType, reply.ContentType)
		require.Equal(t, "1", last(reply, "Retry-After"))
		require.Equal(t, "no-store", last(reply, "Cache-Control"))
		require.Equal(t, "store_unavailable", last(reply, core.RefusedHeader))
		require.NotContains(t, pageHeader, core.Field{Name: "Retry-After", Value: "1"}, "the header of all pages is as it was")
	}
	fault := errors.New("no refusal")
	_, err := get("text/html", fault)
	require.ErrorIs(t, err, fault)
}

// last returns the field of that name that counts.
func last(r *Reply, name string) (value string) {
	for _, field := range r.Header {
		if field.Name == name {
			value = field.Value
		}
	}
	return value
}

func TestFormsThatAreNone(t *testing.T) {
	s := newShop(t)
	for _, body := range []string{"name=", "name=%zz&name=&tins=1", "name=Ann&tea=Coffee&tins=1",
		"name=Ann&tea=Assam&tins=100", "name=+&tea=Assam&tins=1"} {
		r := request(body, "Content-Type", "application/x-www-form-urlencoded")
		reply, err := s.Checkout(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, 422, reply.Status, body)
		require.Contains(t, string(reply.Body), `aria-invalid="true"`, body)
	}
	require.Empty(t, s.receipts)

	// What is not there at all is the shop's to choose.
	reply, err := s.Checkout(context.Background(), request("tea=Sencha", "Content-Type", "application/x-www-form-urlencoded"))
	require.NoError(t, err)
	require.Equal(t, 303, reply.Status)
	for _, order := range s.receipts {
		require.Equal(t, "a guest: 1 Sencha", fmt.Sprintf("%s: %d %s", order.name, order.tins, order.tea))
	}
}
