package sign_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/webhook"
)

func TestTransportTriesAgain(t *testing.T) {
	reset := errors.New("connection reset")
	for _, c := range []struct {
		name    string
		method  string
		keyless bool   // no Idempotency-Key
		header  string // OperationHeader
		answers []any
		sent    int
		status  int           // of what the client gets; 0: the last answer, an error
		waited  time.Duration // at least, and not a second more
		max     int           // MaxAttempts
	}{
		{name: "done at once", answers: []any{answerOf(201)}, sent: 1, status: 201},
		{name: "a broken connection", answers: []any{reset, answerOf(201)}, sent: 2, status: 201},
		{name: "503 with seconds", answers: []any{answerOf(503, "Retry-After", "7"), answerOf(201)},
			sent: 2, status: 201, waited: 7 * time.Second},
		{name: "504 for ever", answers: []any{answerOf(504)}, sent: 3, status: 504},
		{name: "errors for ever", answers: []any{reset}, sent: 3},
		{name: "a date, against the server's own clock", answers: []any{
			answerOf(503, "Date", "Tue, 14 Nov 2023 22:13:20 GMT", "Retry-After", "Tue, 14 Nov 2023 22:13:25 GMT"), answerOf(201),
		}, sent: 2, status: 201, waited: 5 * time.Second},
		{name: "409 in progress", answers: []any{answerOf(409, "Retry-After", "1"), answerOf(201)},
			sent: 2, status: 201, waited: time.Second},
		{name: "409 for good", answers: []any{answerOf(409)}, sent: 1, status: 409},
		{name: "asked to wait too long", answers: []any{answerOf(503, "Retry-After", "3600")}, sent: 1, status: 503},
		{name: "401", answers: []any{answerOf(401)}, sent: 1, status: 401},
		{name: "500 may have been done", answers: []any{answerOf(500)}, sent: 1, status: 500},
		{name: "no Idempotency-Key", keyless: true, answers: []any{reset}, sent: 1},
		{name: "no Idempotency-Key, 503", keyless: true, answers: []any{answerOf(503)}, sent: 1, status: 503},
		{name: "idempotent by its method", method: "PUT", keyless: true, answers: []any{reset, answerOf(201)}, sent: 2, status: 201},
		{name: "safe by its method", method: "QUERY", keyless: true, answers: []any{reset, answerOf(201)}, sent: 2, status: 201},
		{name: "another OperationHeader", header: "x-operation", keyless: true, answers: []any{reset, answerOf(201)}, sent: 2, status: 201},
		{name: "one attempt", max: 1, answers: []any{reset}, sent: 1},
		{name: "five attempts", max: 5, answers: []any{reset, reset, reset, reset, answerOf(201)}, sent: 5, status: 201},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &roundTrips{answers: c.answers}
				transport := &sign.Transport{Key: signtest.Demo, Base: base, MaxAttempts: c.max, OperationHeader: c.header}
				r := signtest.NewRequest(t, nil, "http://api.example.com/a", "body", "X-Operation", "o-1")
				r.Method = cmp.Or(c.method, "POST")
				if !c.keyless {
					r.Header.Set("Idempotency-Key", "k-1")
				}
				began := time.Now()
				resp, err := transport.RoundTrip(r)
				if c.status == 0 {
					require.ErrorIs(t, err, reset)
				} else {
					require.NoError(t, err)
					require.Equal(t, c.status, resp.StatusCode)
					require.Zero(t, resp.Body.(*closing).closed, "it is the client's")
				}
				require.Len(t, base.requests, c.sent)
				took := time.Since(began)
				require.GreaterOrEqual(t, took, c.waited)
				require.Less(t, took, c.waited+4*time.Second)
				var at time.Time
				v := fixture.Verifier(sign.Config{Window: time.Second, Clock: func() time.Time { return at }}, signtest.Demo)
				for i, sent := range base.requests { // each has a nonce of its own, and is signed for the time when it is sent
					at = base.at[i]
					_, err := v.Verify(t.Context(), fixture.Message(sent))
					require.NoError(t, err)
					require.Equal(t, r.Header["Idempotency-Key"], sent.Header["Idempotency-Key"])
				}
			})
		})
	}
}

// What net/http can't send is not sent again, nor is what a Base that breaks its contract was given.
func TestTransportTriesOnce(t *testing.T) {
	base := &roundTrips{answers: []any{answerOf(201)}}
	broken := roundTrip(func(r *http.Request) (*http.Response, error) {
		base.requests = append(base.requests, r)
		return nil, nil
	})
	for name, c := range map[string]struct {
		base   http.RoundTripper
		change func(*http.Request)
		fault  string
		sent   int
	}{
		"a method": {base, func(r *http.Request) { r.Method = "PU T" }, `sign: "PU T" is no method`, 0},
		"a value": {base, func(r *http.Request) { r.Header.Set("X-A", "1\n") },
			"sign: the value of X-A has a control character", 0},
		"a Base that returns nothing": {broken, func(*http.Request) {}, "sign: Transport.Base has returned no response and no error", 1},
		"a tab, and what is no ASCII": {base, func(r *http.Request) { r.Header.Set("X-A", "1\t\u00e9") }, "", 1},
	} {
		base.requests = nil
		r := signtest.NewRequest(t, nil, "http://api.example.com/a", "body")
		r.Method = "PUT"
		c.change(r)
		_, err := (&sign.Transport{Key: signtest.Demo, Base: c.base}).RoundTrip(r)
		require.Len(t, base.requests, c.sent, name)
		require.True(t, c.fault == "" && err == nil || c.fault != "" && err != nil && err.Error() == c.fault, "%s: %v", name, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The nonces of webhooks are made of seconds: two attempts in one would be one message.
func TestWebhooksAreTriedAgainASecondLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := fixture.HMAC("acme")
		standard := sign.Must(webhook.NewStandard(webhook.StandardConfig{KeyID: "acme"}))
		for scheme, apart := range map[sign.Scheme]bool{standard: true, webhook.Stripe("acme"): true, webhook.Slack("acme"): true,
			acme{}: true, webhook.GitHub("acme"): false} {
			v := fixture.Verifier(sign.Config{Scheme: scheme, Clock: time.Now}, key)
			base := &roundTrips{answers: []any{errors.New("reset"), answerOf(503, "Retry-After", "0"),
				answerOf(503, "Retry-After", "5"), answerOf(201)}}
			r := signtest.NewRequest(t, nil, "http://api.example.com/a", "{}", "Webhook-Id", "evt_1")
			began := time.Now()
			transport := &sign.Transport{Key: key, Base: base, OperationHeader: "Webhook-Id",
				Options: sign.RequestOptions{Scheme: scheme}, MaxAttempts: 4}
			_, err := transport.RoundTrip(r)
			require.NoError(t, err)
			require.Len(t, base.requests, 4)
			require.Equal(t, apart, time.Since(began) >= 7*time.Second, scheme.Name())
			for _, sent := range base.requests {
				_, err := v.Verify(t.Context(), fixture.Message(sent))
				require.NoError(t, err, scheme.Name())
			}
			base.requests, base.answers, transport.MaxWait = nil, []any{answerOf(503, "Retry-After", "0"), answerOf(201)}, time.Second-1
			r.Body, _ = r.GetBody()
			resp, err := transport.RoundTrip(r)
			require.NoError(t, err)
			require.Equal(t, apart, resp.StatusCode == 503, "%s: a second is longer than MaxWait", scheme.Name())
		}
	})
}

// A response that is not used, and does not end, delays nothing.
func TestBodiesThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, end := io.Pipe()
		defer end.Close()
		dripping := answerOf(503, "Retry-After", "0")
		base := &roundTrips{answers: []any{dripping, answerOf(201)}, body: body}
		r, err := http.NewRequest("PUT", "http://api.example.com/a", nil)
		require.NoError(t, err)
		began := time.Now()
		resp, err := (&sign.Transport{Key: signtest.Demo, Base: base}).RoundTrip(r)
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Less(t, time.Since(began), time.Second)
	})
}

// A redirect is signed only if it leads to where the request went.
func TestRedirectsByOrigin(t *testing.T) {
	for _, c := range []struct {
		from, to string
		signed   bool
	}{
		{"http://h/a", "http://h/b", true},
		{"http://h/a", "http://H:80/b", true},
		{"https://h:443/a", "https://h/b", true},
		{"http://h/a", "https://h/a", false},
		{"https://h/a", "http://h/a", false},
		{"http://h/a", "http://h:81/a", false},
		{"https://h:81/a", "http://h:81/a", false},
		{"http://h/a", "http://h.evil/a", false},
		{"", "http://h/a", false}, // it cannot be known
	} {
		r, err := http.NewRequest("GET", c.to, nil)
		require.NoError(t, err)
		r.Response = new(http.Response)
		if c.from != "" {
			r.Response.Request, err = http.NewRequest("GET", c.from, nil)
			require.NoError(t, err)
		}
		base := &roundTrips{answers: []any{answerOf(200)}}
		_, err = (&sign.Transport{Key: signtest.Demo, Base: base}).RoundTrip(r)
		require.Equal(t, c.signed, err == nil, "%s to %s", c.from, c.to)
		require.Equal(t, c.signed, len(base.requests) == 1)
	}
}

func TestTransportEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &roundTrips{answers: []any{answerOf(503, "Retry-After", "10")}}
		transport := &sign.Transport{Key: signtest.Demo, Base: base}
		send := func(ctx context.Context) (*http.Response, time.Duration, error) {
			r, err := http.NewRequestWithContext(ctx, "PUT", "http://api.example.com/a", nil)
			require.NoError(t, err)
			began := time.Now()
			resp, err := transport.RoundTrip(r)
			return resp, time.Since(began), err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		resp, took, err := send(ctx)
		require.NoError(t, err, "there is no time for another attempt: this answer is the last")
		require.Equal(t, 503, resp.StatusCode)
		require.Zero(t, took)

		left := errors.New("the user has left")
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { leave(left) })
		_, took, err = send(ctx)
		require.ErrorIs(t, err, left)
		require.Equal(t, 3*time.Second, took)

		base.answers = []any{errors.New("reset")}
		_, took, err = send(ctx)
		require.EqualError(t, err, "reset")
		require.Zero(t, took)
	})
}
