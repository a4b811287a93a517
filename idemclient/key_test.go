package idemclient_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/idemclient"
)

func TestKeys(t *testing.T) {
	chosen := func(key string) context.Context {
		return idemclient.WithKey(t.Context(), key, time.Now().Add(-time.Hour))
	}
	for _, c := range []struct {
		name, method, url, field string
		lower                    string // a field whose name is in lower case
		ctx                      context.Context
		key, fault               string // key is a regular expression; empty: there is none
		passed                   bool   // what fails is not tried again
	}{
		{name: "made", method: "POST", url: "https://api.test/a", key: `^"[A-Z2-7]{26}"$`},
		{name: "made, with another port", method: "PATCH", url: "http://API.test:8080/a", key: `^"[A-Z2-7]{26}"$`},
		{name: "made, with the scheme's port", method: "PUT", url: "https://one.test/a", key: `^"[A-Z2-7]{26}"$`},
		{name: "IPv6", method: "DELETE", url: "http://[::1]:81/a", key: `^"[A-Z2-7]{26}"$`},
		{name: "a method of its own", method: "PAY", url: "https://api.test/a", key: `^"[A-Z2-7]{26}"$`},
		{name: "stored", method: "POST", url: "https://api.test/a", ctx: chosen("order-1"), key: `^order-1$`},
		{name: "stored, a string", method: "POST", url: "https://api.test/a", ctx: chosen(`"order 1"`), key: `^"order 1"$`},
		{name: "the request's own", method: "POST", url: "https://api.test/a", field: "order-1", key: `^order-1$`},
		{name: "the request's own, in lower case", method: "POST", url: "https://api.test/a", lower: "order-1", key: `^order-1$`},
		{name: "in lower case, and another one", method: "POST", url: "https://api.test/a", ctx: chosen("order-1"),
			lower: "order-2", fault: "context has another"},
		{name: "another host, in lower case", method: "POST", url: "https://other.test/a",
			lower: "order-1", key: `^order-1$`, passed: true},
		{name: "a trailing dot", method: "POST", url: "https://api.test./a", key: `^"[A-Z2-7]{26}"$`},
		{name: "a trailing dot, and a port", method: "POST", url: "https://dot.test:8443/a", key: `^"[A-Z2-7]{26}"$`},
		{name: "both", method: "POST", url: "https://api.test/a", ctx: chosen("order-1"), field: "order-1", key: `^order-1$`},
		{name: "two", method: "POST", url: "https://api.test/a", ctx: chosen("order-1"), field: "order-2", fault: "context has another"},
		{name: "an empty one", method: "POST", url: "https://api.test/a", ctx: chosen(""), fault: "1 to 255"},
		{name: "a long one", method: "POST", url: "https://api.test/a", ctx: chosen(strings.Repeat("k", 256)), fault: "1 to 255"},
		{name: "the longest", method: "POST", url: "https://api.test/a", ctx: chosen(strings.Repeat("k", 255)), key: "^k+$"},
		{name: "DEL", method: "POST", url: "https://api.test/a", ctx: chosen("a\x7f"), fault: "1 to 255"},
		{name: "one of two lines", method: "POST", url: "https://api.test/a", ctx: chosen("a\r\nX-User: bob"), fault: "1 to 255"},
		{name: "GET", method: "GET", url: "https://api.test/a", ctx: chosen("order-1")},
		{name: "no method", url: "https://api.test/a"},
		{name: "another host", method: "POST", url: "https://other.test/a", ctx: chosen("order-1"), passed: true},
		{name: "a host below", method: "POST", url: "https://a.api.test/a", passed: true},
		{name: "another port", method: "POST", url: "http://one.test/a", passed: true},
		{name: "another host, the request's own", method: "POST", url: "https://other.test/a",
			field: "order-1", key: `^order-1$`, passed: true},
		{name: "an upgrade", method: "GET", url: "https://api.test/a", passed: true},
		{name: "CONNECT", method: "CONNECT", url: "https://api.test/a", passed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := &script{answers: []any{errReset, answer(200)}}
			transport := &idemclient.Transport{Hosts: []string{"Api.test", "one.test:443", "[::1]", "dot.test.:8443"},
				Base: base, MaxWait: time.Millisecond}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			r := request(c.ctx, t, c.method, c.url, "")
			r.Method = c.method
			if c.field != "" {
				r.Header.Set("Idempotency-Key", c.field)
			}
			if c.lower != "" {
				r.Header["idempotency-key"] = []string{c.lower}
			}
			if c.name == "an upgrade" {
				r.Header.Set("Upgrade", "websocket")
			}
			if c.name == "made" {
				r.Header = nil
			}
			before := r.Clone(t.Context())
			_, err := transport.RoundTrip(r)
			require.Equal(t, before.Header, r.Header)
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault)
				require.Empty(t, base.sent)
				return
			}
			if c.passed {
				require.Equal(t, errReset, err)
				require.Len(t, base.sent, 1)
			} else {
				require.NoError(t, err)
				require.Len(t, base.sent, 2)
			}
			for _, s := range base.sent {
				require.Equal(t, c.key != "", s.key != "")
				require.Regexp(t, c.key, s.key)
			}
		})
	}

	// Two requests without a key of their own have two.
	base := &script{answers: []any{answer(200)}}
	transport := &idemclient.Transport{Hosts: hosts, Base: base}
	for range 2 {
		_, err := transport.RoundTrip(request(t.Context(), t, "POST", "https://api.test/a", ""))
		require.NoError(t, err)
	}
	require.NotEqual(t, base.sent[0].key, base.sent[1].key)

	// A key that was stored is for one request, however often that is sent.
	ctx := chosen("order-1")
	for target, fault := range map[string]string{"/a": "", "/b": "another method or URL"} {
		for _, path := range []string{"/a", target} {
			_, err := transport.RoundTrip(request(ctx, t, "POST", "https://api.test"+path, ""))
			if path == "/a" || fault == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, fault)
			}
		}
	}

	// The error has the key that was sent, also the request's own.
	r := request(t.Context(), t, "POST", "https://api.test/a", "")
	r.Header.Set("Idempotency-Key", "order-1")
	_, err := (&idemclient.Transport{Hosts: hosts, Base: &script{answers: []any{errReset}}, MaxTries: 1}).RoundTrip(r)
	e, _ := errors.AsType[*idemclient.Error](err)
	require.Equal(t, "order-1", e.Key)

	// Nothing is guarded by mistake, and nothing unguarded.
	transport = &idemclient.Transport{Base: base}
	_, err = transport.RoundTrip(request(t.Context(), t, "POST", "https://api.test/a", ""))
	require.NoError(t, err)
	require.Empty(t, base.sent[len(base.sent)-1].key)
	for _, host := range []string{"", ".", "https://api.test", "api.test/v1", "*.api.test", "ann@api.test", "a b", "::1"} {
		body := &watched{Reader: strings.NewReader("bytes")}
		r := request(t.Context(), t, "POST", "https://api.test/a", "")
		r.Body = body
		_, err := (&idemclient.Transport{Hosts: []string{"api.test", host}}).RoundTrip(r)
		require.ErrorContains(t, err, "Transport.Hosts", host)
		require.Equal(t, 1, body.closed)
	}
}

func TestKeyLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := answer(409, "Idempotency-Refused", "in_progress", "Retry-After", "10")
		expiring := answer(503, "Retry-After", "10", "Date", "Tue, 14 Nov 2023 22:13:20 GMT",
			"Idempotency-Key-Expires", "Tue, 14 Nov 2023 22:15:00 GMT")
		for _, c := range []struct {
			name      string
			transport *idemclient.Transport
			first     time.Duration // how long ago
			answers   []any
			sent      int
			waited    time.Duration // about
			unknown   bool
		}{
			{name: "a day", answers: []any{running}, sent: 7600, waited: 24 * time.Hour, unknown: true},
			{name: "an hour", transport: &idemclient.Transport{KeyLifetime: time.Hour}, answers: []any{running},
				sent: 320, waited: time.Hour, unknown: true},
			{name: "two days", transport: &idemclient.Transport{KeyLifetime: 48 * time.Hour}, first: 47 * time.Hour,
				answers: []any{running, answer(201)}, sent: 2, waited: 10 * time.Second},
			{name: "stored, and young enough", first: 24*time.Hour - time.Minute, answers: []any{running, answer(201)},
				sent: 2, waited: 10 * time.Second},
			{name: "stored, and getting too old", first: 24*time.Hour - 5*time.Second,
				answers: []any{running, answer(201)}, sent: 1, unknown: true},
			{name: "stored, and too old", first: 24 * time.Hour, answers: []any{answer(201)}, unknown: true},
			{name: "another machine's clock", first: -30 * time.Second, answers: []any{answer(201)}, sent: 1},
			{name: "a clock that was set back", first: -time.Hour, answers: []any{answer(201)}, unknown: true},
			{name: "an answer says when", transport: &idemclient.Transport{MaxTries: 100}, answers: []any{expiring, errReset, running},
				sent: 10, waited: 90 * time.Second, unknown: true},
			{name: "an answer says now", answers: []any{answer(503, "Retry-After", "1", "Date", "Tue, 14 Nov 2023 22:13:20 GMT",
				"Idempotency-Key-Expires", "Tue, 14 Nov 2023 22:13:20 GMT"), answer(201)}, sent: 1, unknown: true},
			{name: "an answer says nothing", answers: []any{answer(503, "Retry-After", "1", "Idempotency-Key-Expires", "soon"),
				answer(201)}, sent: 2, waited: time.Second},
			{name: "an answer says later", first: 24*time.Hour - 15*time.Second, answers: []any{expiring, running, answer(201)},
				sent: 3, waited: 20 * time.Second},
		} {
			base := &script{answers: c.answers}
			transport := c.transport
			if transport == nil {
				transport = new(idemclient.Transport)
			}
			transport.Hosts, transport.Base = hosts, base
			ctx := t.Context()
			if c.first != 0 {
				ctx = idemclient.WithKey(ctx, "order-1", time.Now().Add(-c.first))
			}
			began := time.Now()
			_, err := transport.RoundTrip(request(ctx, t, "POST", "https://api.test/a", "bytes"))
			assert.Equal(t, c.unknown, errors.Is(err, idemclient.ErrOutcomeUnknown), "%s: %v", c.name, err)
			assert.Equal(t, c.unknown, err != nil, "%s: %v", c.name, err)
			assert.InDelta(t, c.sent, len(base.sent), float64(c.sent)/6, c.name)
			assert.InDelta(t, c.waited, time.Since(began), float64(c.waited)/6, c.name)
			if e, ok := errors.AsType[*idemclient.Error](err); ok {
				assert.Equal(t, len(base.sent), e.Tries, c.name)
			}
		}

		// What is known of a key goes with it over a redirect.
		for name, c := range map[string]struct {
			first time.Duration
			field string
		}{"stored": {24*time.Hour - 5*time.Second, "X"}, "the first answer says when": {0, "Idempotency-Key-Expires"}} {
			base := &script{answers: []any{answer(307, "Location", "/b", c.field,
				time.Now().Add(5*time.Second).UTC().Format(http.TimeFormat)), running}}
			ctx := idemclient.WithKey(t.Context(), "order-1", time.Now().Add(-c.first))
			_, err := (&http.Client{Transport: &idemclient.Transport{Hosts: hosts, Base: base}}).Do(
				request(ctx, t, "POST", "https://api.test/a", "bytes"))
			assert.ErrorIs(t, err, idemclient.ErrOutcomeUnknown, name)
			assert.Len(t, base.sent, 2, name)
		}
	})
}

// byHost leads to a script for each host, as a network does.
type byHost map[string]*script

func (b byHost) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b[r.URL.Host].RoundTrip(r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

func TestRedirects(t *testing.T) {
	to := func(status int, location string) *http.Response { return answer(status, "Location", location) }
	for _, c := range []struct {
		name   string
		status int
		to     string
		field  bool // the request's own key
		method string
		key    bool
		sent   int // of two tries that it needs
	}{
		{name: "307 on the host", status: 307, to: "https://api.test/b", method: "POST", key: true, sent: 2},
		{name: "308 on the host", status: 308, to: "https://api.test/b", field: true, method: "POST", key: true, sent: 2},
		{name: "307 to another guarded host", status: 307, to: "https://eu.test/b", method: "POST", key: true, sent: 2},
		{name: "307 to a host that is not guarded", status: 307, to: "https://evil.test/b", method: "POST", sent: 1},
		{name: "307 there, with the request's own", status: 307, to: "https://evil.test/b", field: true, method: "POST", sent: 1},
		{name: "301", status: 301, to: "https://api.test/b", field: true, method: "GET", sent: 1},
		{name: "302", status: 302, to: "https://api.test/b", method: "GET", sent: 1},
		{name: "303", status: 303, to: "https://eu.test/b", field: true, method: "GET", sent: 1},
		{name: "303 to a host that is not guarded", status: 303, to: "https://evil.test/b", field: true, method: "GET", sent: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			net := byHost{"api.test": {}, "eu.test": {}, "evil.test": {}}
			transport := &idemclient.Transport{Hosts: []string{"api.test", "eu.test"}, Base: net, MaxWait: time.Millisecond}
			r := request(t.Context(), t, "POST", "https://api.test/a", "bytes")
			if c.field {
				r.Header.Set("Idempotency-Key", "order-1")
			}
			first := net["api.test"]
			first.answers = []any{errReset, to(c.status, c.to), errReset, answer(201)}
			second := net[strings.TrimSuffix(strings.TrimPrefix(c.to, "https://"), "/b")]
			if second != first {
				second.answers = []any{errReset, answer(201)}
			}
			resp, err := (&http.Client{Transport: transport}).Do(r)
			if c.sent == 1 {
				require.ErrorIs(t, err, errReset)
			} else {
				require.NoError(t, err)
				require.Equal(t, 201, resp.StatusCode)
			}
			after := second.sent
			if second == first {
				after = first.sent[2:]
			}
			require.Len(t, after, c.sent)
			require.Equal(t, first.sent[0].key, first.sent[1].key)
			for _, s := range after {
				require.Equal(t, c.method, s.method)
				require.Equal(t, c.key, s.key != "")
				if c.key {
					require.Equal(t, first.sent[0].key, s.key)
				}
				if c.method == "POST" {
					require.Equal(t, "bytes", s.body)
				}
			}
		})
	}

	// Whatever its spelling.
	evil := &script{answers: []any{answer(200)}}
	low := request(t.Context(), t, "POST", "https://api.test/a", "bytes")
	low.Header["idempotency-key"] = []string{"order-1"}
	_, err := (&http.Client{Transport: &idemclient.Transport{Hosts: hosts,
		Base: byHost{"api.test": {answers: []any{to(307, "https://evil.test/")}}, "evil.test": evil}}}).Do(low)
	require.NoError(t, err)
	require.Empty(t, evil.sent[0].key)

	// Nor does a later GET have it; and back at a guarded host the operation has its key again.
	net := byHost{"api.test": {answers: []any{to(307, "https://evil.test/"), to(303, "https://evil.test/c"), answer(200)}},
		"evil.test": {answers: []any{to(307, "https://api.test/b"), to(302, "https://api.test/d")}}}
	r := request(t.Context(), t, "POST", "https://api.test/a", "bytes")
	r.Header.Set("Idempotency-Key", "order-1")
	_, err = (&http.Client{Transport: &idemclient.Transport{Hosts: hosts, Base: net}}).Do(r)
	require.NoError(t, err)
	var keys []string
	for _, s := range append(net["api.test"].sent, net["evil.test"].sent...) {
		keys = append(keys, s.method+" "+s.url+" "+s.key)
	}
	require.Equal(t, []string{"POST https://api.test/a order-1", "POST https://api.test/b order-1", "GET https://api.test/d ",
		"POST https://evil.test/ ", "GET https://evil.test/c "}, keys)

	// Nor one to which a host leads that is not guarded. Whereto that leads is not the caller's choice: a stored key goes there, too.
	net = byHost{"lb.test": {answers: []any{to(303, "https://api.test/"), to(307, "https://api.test/"), to(307, "https://eu.test/")}},
		"api.test": {answers: []any{answer(200)}}, "eu.test": {answers: []any{answer(200)}}}
	client := &http.Client{Transport: &idemclient.Transport{Hosts: []string{"api.test", "eu.test"}, Base: net}}
	r = request(t.Context(), t, "POST", "https://lb.test/", "bytes")
	r.Header.Set("Idempotency-Key", "order-1")
	_, err = client.Do(r)
	require.NoError(t, err)
	require.Empty(t, net["api.test"].sent[0].key)
	ctx := idemclient.WithKey(t.Context(), "order-1", time.Now())
	for range 2 {
		_, err := client.Do(request(ctx, t, "POST", "https://lb.test/", "bytes"))
		require.NoError(t, err)
	}
	require.Equal(t, "order-1", net["api.test"].sent[1].key)
	require.Equal(t, "order-1", net["eu.test"].sent[0].key)
}
