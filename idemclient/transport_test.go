package idemclient_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemclient"
)

var (
	hosts    = []string{"api.test"}
	errReset = errors.New("connection reset")
)

func request(ctx context.Context, t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	return r
}

func TestTries(t *testing.T) {
	refused := func(status int, code codes.Code, seconds string) *http.Response {
		return answer(status, core.RefusedHeader, string(code), "Retry-After", seconds)
	}
	inFlight := func(body string) *http.Response {
		return answer(409, "Content-Type", "application/json", "Retry-After", "1", "body", body)
	}
	done := answer(201, "body", "done")
	for _, c := range []struct {
		name      string
		transport *idemclient.Transport // nil: a zero one
		method    string
		answers   []any
		sent      int
		status    int           // of what the caller gets; 0: an Error
		why       string        // in that
		last      int           // the status of its Response
		waited    time.Duration // at least, and not half as much and three seconds more
	}{
		{name: "done at once", answers: []any{done}, sent: 1, status: 201},
		{name: "a broken connection", answers: []any{errReset, done}, sent: 2, status: 201},
		{name: "each status that passes", answers: []any{answer(408), answer(425), answer(429), done}, sent: 4, status: 201},
		{name: "each status of a gateway", answers: []any{answer(502), answer(503), answer(504), done}, sent: 4, status: 201},
		{name: "Retry-After in seconds", answers: []any{answer(503, "Retry-After", "7"), done},
			sent: 2, status: 201, waited: 7 * time.Second},
		{name: "Retry-After as a date, by the server's clock", answers: []any{
			answer(429, "Date", "Tue, 14 Nov 2023 22:13:20 GMT", "Retry-After", "Tue, 14 Nov 2023 22:13:25 GMT"), done,
		}, sent: 2, status: 201, waited: 5 * time.Second},
		{name: "a date that is past", answers: []any{answer(503, "Retry-After", "Tue, 14 Nov 1995 22:13:20 GMT"), done},
			sent: 2, status: 201},
		{name: "nonsense", answers: []any{answer(503, "Retry-After", "-1"), done}, sent: 2, status: 201},
		{name: "running", answers: []any{refused(409, codes.InProgress, "1"), done}, sent: 2, status: 201, waited: time.Second},
		{name: "running for longer than there are tries", transport: &idemclient.Transport{MaxTries: 2},
			answers: []any{refused(409, codes.InProgress, "1"), errReset, refused(409, codes.InProgress, "1"),
				refused(409, codes.InProgress, "1"), done}, sent: 5, status: 201, waited: 3 * time.Second},
		{name: "running, in a format of the service's own", answers: []any{refused(200, codes.InProgress, "2"), done},
			sent: 2, status: 201, waited: 2 * time.Second},
		{name: "refused for a while, with a status of the service's own",
			answers: []any{refused(400, codes.StoreUnavailable, "1"), refused(400, codes.ShuttingDown, "1"),
				refused(400, codes.Unfinished, "1"), refused(400, codes.RateLimited, "1"), done},
			sent: 5, status: 201, waited: 4 * time.Second},
		{name: "ACP", answers: []any{inFlight(`{"type":"invalid_request","code":"idempotency_in_flight"}`), done},
			sent: 2, status: 201, waited: time.Second},
		{name: "AdCP", answers: []any{inFlight(`{"errors":[{"code":"IDEMPOTENCY_IN_FLIGHT"}]}`), done},
			sent: 2, status: 201, waited: time.Second},
		{name: "Stripe", answers: []any{inFlight(`{"error":{"code":"idempotency_key_in_use"}}`), done},
			sent: 2, status: 201, waited: time.Second},
		{name: "another 409 of JSON", answers: []any{inFlight(`{"code":"out_of_stock","in":["idempotency_in_flight"]}`)},
			sent: 1, status: 409},
		{name: "in flight, but no 409", answers: []any{answer(422, "Content-Type", "application/json", "body",
			`{"code":"idempotency_in_flight"}`)}, sent: 1, status: 422},
		{name: "another 409", answers: []any{answer(409, "Retry-After", "1")}, sent: 1, status: 409},
		{name: "duplicate", answers: []any{refused(409, codes.Duplicate, "")}, sent: 1, status: 409},
		{name: "400", answers: []any{answer(400)}, sent: 1, status: 400},
		{name: "401", answers: []any{answer(401)}, sent: 1, status: 401},
		{name: "403", answers: []any{answer(403)}, sent: 1, status: 403},
		{name: "413", answers: []any{answer(413)}, sent: 1, status: 413},
		{name: "422", answers: []any{refused(422, codes.KeyReused, "")}, sent: 1, status: 422},
		{name: "500", answers: []any{answer(500)}, sent: 1, status: 500},
		{name: "501", answers: []any{answer(501)}, sent: 1, status: 501},
		{name: "500, which is not replayed", transport: &idemclient.Transport{Retry500: true},
			answers: []any{answer(500), done}, sent: 2, status: 201},
		{name: "asked to wait too long", answers: []any{answer(503, "Retry-After", "31")}, sent: 1, why: "wait too long", last: 503},
		{name: "asked to wait for ages", answers: []any{answer(503, "Retry-After", "99999999999999999999")},
			sent: 1, why: "wait too long", last: 503},
		{name: "running for too long", answers: []any{refused(409, codes.InProgress, "31")}, sent: 1, why: "wait too long", last: 409},
		{name: "MaxWait", transport: &idemclient.Transport{MaxWait: time.Hour}, answers: []any{answer(503, "Retry-After", "3000"), done},
			sent: 2, status: 201, waited: 50 * time.Minute},
		{name: "asked to wait for MaxWait", answers: []any{answer(503, "Retry-After", "30"), done}, sent: 2,
			status: 201, waited: 30*time.Second - 1},
		{name: "asked for a short MaxWait each time", transport: &idemclient.Transport{MaxWait: time.Second},
			answers: []any{answer(429, "Retry-After", "1")}, sent: 5, why: "no more tries", last: 429, waited: 4*time.Second - 1},
		{name: "a short MaxWait bounds its own pauses", transport: &idemclient.Transport{MaxWait: time.Millisecond},
			answers: []any{errReset, done}, sent: 2, status: 201},
		{name: "503 for ever", answers: []any{answer(503)}, sent: 5,
			why: "no more tries; sent 5 times; the last answer is 503 Service Unavailable", last: 503},
		{name: "errors for ever", answers: []any{errReset}, sent: 5, why: "no more tries; sent 5 times: connection reset"},
		{name: "one try", transport: &idemclient.Transport{MaxTries: 1}, answers: []any{refused(409, codes.InProgress, "1")},
			sent: 1, why: "no more tries", last: 409},
		{name: "a certificate of somebody else", answers: []any{&tls.CertificateVerificationError{Err: errReset}},
			sent: 1, why: "would not help"},
		{name: "GET", method: "GET", answers: []any{errReset, answer(503), done}, sent: 3, status: 201},
		{name: "QUERY", method: "QUERY", answers: []any{errReset, answer(503), done}, sent: 3, status: 201},
		{name: "a Base that returns nothing", answers: []any{nothing}, sent: 1,
			why: "another try would not help; sent once: idemclient: Transport.Base has returned no response and no error"},
		{name: "DELETE", method: "DELETE", answers: []any{errReset, answer(503), done}, sent: 3, status: 201},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &script{answers: c.answers}
				transport := cmp.Or(c.transport, new(idemclient.Transport))
				transport.Base, transport.Hosts = base, hosts
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour) // which changes nothing
				defer cancel()
				began := time.Now()
				resp, err := transport.RoundTrip(request(ctx, t, cmp.Or(c.method, "POST"), "https://api.test/a", "bytes"))
				took := time.Since(began)

				require.Len(t, base.sent, c.sent)
				assert.True(t, took > c.waited || c.waited == 0, "%v: who was told the same does not come at the same moment", took)
				assert.Less(t, took, c.waited*3/2+3*time.Second)
				for _, s := range base.sent {
					assert.Equal(t, base.sent[0].key, s.key)
					assert.Equal(t, c.method != "GET" && c.method != "QUERY", s.keys == 1)
					assert.Equal(t, "bytes", s.body)
				}
				for i, body := range base.bodies {
					assert.Equal(t, c.status == 0 || i < len(base.bodies)-1, body.closed > 0, "answer %d", i+1)
				}
				if c.status != 0 {
					require.NoError(t, err)
					require.Equal(t, c.status, resp.StatusCode)
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.Equal(t, c.answers[len(c.answers)-1].(*http.Response).Status, string(body))
					resp.Body.Close()
					return
				}
				e, ok := errors.AsType[*idemclient.Error](err)
				require.True(t, ok, "%v", err)
				assert.Nil(t, resp)
				assert.Equal(t, c.sent, e.Tries)
				assert.Equal(t, base.sent[0].key, e.Key)
				assert.Equal(t, base.sent[0].at, e.FirstSent)
				assert.ErrorContains(t, err, c.why)
				assert.NotContains(t, err.Error(), e.Key)
				if c.last != 0 {
					require.NotNil(t, e.Response)
					assert.Equal(t, c.last, e.Response.StatusCode)
				} else {
					assert.Nil(t, e.Response)
					assert.True(t, errors.Is(err, errReset) || c.name == "a Base that returns nothing")
				}
			})
		})
	}
}

// nothing is what no Base may answer.
func nothing(*http.Request) (*http.Response, error) { return nil, nil }

// The pauses double, up to some seconds.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		grown := 100 * time.Millisecond
		transport := &idemclient.Transport{Hosts: hosts, Base: &script{answers: []any{errReset}},
			MaxTries: 12, Observe: func(try idemclient.Try) {
				assert.True(t, try.Pause == 0 || grown/2 <= try.Pause && try.Pause < grown*3/2, "%v", try.Pause)
				grown = min(2*grown, 6400*time.Millisecond)
			}}
		_, err := transport.RoundTrip(request(t.Context(), t, "POST", "https://api.test/a", "bytes"))
		require.ErrorContains(t, err, "sent 12 times")
	})
}

// The client's constants are those of the guards.
func TestFieldsOfGuards(t *testing.T) {
	require.Equal(t, []string{"Idempotency-Key", "Idempotency-Refused", "Idempotency-Key-Expires"},
		[]string{core.DefaultKeyHeader, core.RefusedHeader, core.ExpiresHeader})
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []any{answer(503, "Retry-After", "10", "body", strings.Repeat("later", 20<<10))}}
		transport := &idemclient.Transport{Hosts: hosts, Base: base, MaxWait: 10 * time.Second}
		send := func(ctx context.Context) (*idemclient.Error, time.Duration) {
			began := time.Now()
			_, err := transport.RoundTrip(request(ctx, t, "POST", "https://api.test/a", "bytes"))
			e, ok := errors.AsType[*idemclient.Error](err)
			require.True(t, ok, "%v", err)
			return e, time.Since(began)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // not longer than the pause
		defer cancel()
		e, took := send(ctx)
		require.Zero(t, took, "there is no time for another try")
		require.ErrorContains(t, e, "the deadline comes before the next try")
		body, err := io.ReadAll(e.Response.Body)
		require.NoError(t, err)
		require.Len(t, body, 64<<10)

		// What is added to a Retry-After takes no try.
		base.answers = []any{answer(503, "Retry-After", "10", "body", "later"), answer(201)}
		for range 20 {
			base.sent = nil
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
			resp, err := (&idemclient.Transport{Hosts: hosts, Base: base}).RoundTrip(request(ctx, t, "POST", "https://api.test/a", "bytes"))
			cancel()
			require.NoError(t, err)
			require.Equal(t, 201, resp.StatusCode)
		}
		base.answers = base.answers[:1]

		left := errors.New("the user has left")
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { leave(left) })
		e, took = send(ctx)
		require.ErrorIs(t, e, left)
		require.Equal(t, 3*time.Second, took)
		require.Equal(t, 503, e.Response.StatusCode)

		ctx, leave = context.WithCancelCause(t.Context())
		base.answers = []any{func(*http.Request) (*http.Response, error) { leave(left); return answer(201), nil }}
		e, _ = send(ctx)
		require.ErrorIs(t, e, left, "nobody could read the answer")

		base.answers = []any{func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e, took = send(ctx)
		require.ErrorIs(t, e, context.DeadlineExceeded)
		require.True(t, e.Timeout())
		require.Equal(t, time.Second, took)
		require.Equal(t, 1, e.Tries)
	})
}

// The limit of a try ends with the header of its response, and begins anew with each part of a long body.
func TestTryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung time.Duration // after the body has come
		hang := func(r *http.Request) (*http.Response, error) {
			began := time.Now()
			<-r.Context().Done()
			hung = time.Since(began)
			return nil, r.Context().Err()
		}
		slowly := func(r *http.Request) (*http.Response, error) {
			resp := answer(201)
			resp.Body = &watched{Reader: slow{strings.NewReader("answer"), 20 * time.Second, r.Context()}}
			return resp, nil
		}
		base := &script{answers: []any{hang, slowly}}
		var tries []idemclient.Try
		transport := &idemclient.Transport{Hosts: hosts, Base: base, TryTimeout: 15 * time.Second,
			Observe: func(try idemclient.Try) { tries = append(tries, try) }}
		long := strings.Repeat("x", 5*(64<<10))
		r := request(t.Context(), t, "POST", "https://api.test/a", long)
		r.Body = io.NopCloser(slow{r.Body, 10 * time.Second, t.Context()}) // of the first try
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "answer", string(body))
		resp.Body.Close()
		require.Len(t, base.sent, 2)
		require.Equal(t, len(long), len(base.sent[0].body))
		require.Equal(t, 15*time.Second, hung, "each part gives it time")

		require.Len(t, tries, 2)
		require.EqualError(t, tries[0].Err, "no answer within 15s")
		require.NotZero(t, tries[0].Pause)
		require.Same(t, resp, tries[1].Response)
		require.Equal(t, []int{0, 1}, []int{tries[0].ResendCount, tries[1].ResendCount})
		require.Equal(t, base.sent[1].key, tries[1].Request.Header.Get("Idempotency-Key"))
		require.Zero(t, tries[1].Pause)

		// It does not hold for a body that can be sent only once.
		base.answers = []any{func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Minute)
			return answer(201), r.Context().Err()
		}}
		r = request(t.Context(), t, "POST", "https://api.test/a", strings.Repeat("x", 1<<20+1))
		r.GetBody = nil
		_, err = transport.RoundTrip(r)
		require.NoError(t, err)

		// What is sent when the answer is there already does not begin it anew.
		var rest io.Reader
		early := roundTrip(func(r *http.Request) (*http.Response, error) { rest = r.Body; return slowly(r) })
		resp, err = (&idemclient.Transport{Hosts: hosts, Base: early, TryTimeout: time.Second}).RoundTrip(
			request(t.Context(), t, "POST", "https://api.test/a", long))
		require.NoError(t, err)
		_, err = rest.Read(make([]byte, 1))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()

		base.answers = []any{hang}
		_, err = transport.RoundTrip(request(t.Context(), t, "POST", "https://api.test/a", "bytes"))
		e, _ := errors.AsType[*idemclient.Error](err)
		require.True(t, e.Timeout())
		require.NotErrorIs(t, err, context.Canceled, "the caller has cancelled nothing")

		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = (&idemclient.Transport{Hosts: hosts, Base: base, TryTimeout: -1}).RoundTrip(
			request(ctx, t, "POST", "https://api.test/a", "bytes"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(began))
	})
}

// slow takes a while before each read.
type slow struct {
	io.Reader
	pause time.Duration
	ctx   context.Context
}

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	if s.ctx.Err() != nil {
		return 0, s.ctx.Err()
	}
	return s.Reader.Read(p[:min(len(p), 64<<10)])
}

// However many callers there are: in an outage a host gets the first try of each, and then no more than its budget.
func TestBudget(t *testing.T) {
	for _, callers := range []int{20, 2000} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{answers: []any{errReset}}
			transport := &idemclient.Transport{Hosts: []string{"api.test", "other.test"}, Base: base}
			began := time.Now()
			failed := make(chan error, callers)
			for range callers {
				r := request(t.Context(), t, "POST", "https://api.test/a", "bytes")
				go func() {
					_, err := transport.RoundTrip(r)
					failed <- err
				}()
			}
			for range callers {
				require.ErrorIs(t, <-failed, errReset)
			}
			perSecond := make(map[int]int)
			for _, s := range base.sent[callers:] {
				perSecond[int(s.at.Sub(began)/time.Second)]++
			}
			for second, n := range perSecond {
				assert.LessOrEqual(t, n, 21, "second %d", second) // ten that were saved, ten, and one on the edge
				assert.True(t, second == 0 || n <= 11, "second %d: %d", second, n)
			}
			assert.GreaterOrEqual(t, len(base.sent)-callers, min(4*callers, 200), "they wait for their turn")

			// Another host has a budget of its own; ten answers are worth a try.
			count := len(base.sent)
			_, err := transport.RoundTrip(request(t.Context(), t, "POST", "https://other.test/a", "bytes"))
			require.ErrorContains(t, err, "no more tries")
			require.Len(t, base.sent, count+5)
		})
	}
}

// A turn that is MaxWait away is waited for.
func TestTurnAtMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []any{errReset}}
		transport := &idemclient.Transport{Hosts: hosts, Base: base, Budget: 1, MaxTries: 2, MaxWait: time.Second}
		var callers sync.WaitGroup
		for range 3 {
			r := request(t.Context(), t, "POST", "https://api.test/a", "bytes")
			callers.Go(func() {
				_, err := transport.RoundTrip(r)
				assert.ErrorIs(t, err, errReset)
			})
		}
		callers.Wait()
		require.Len(t, base.sent, 5)
	})
}

func TestAnswersAddToTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []any{errReset}}
		transport := &idemclient.Transport{Hosts: hosts, Base: base, Budget: 2, MaxTries: 2, MaxWait: 100 * time.Millisecond}
		send := func(ctx context.Context) error {
			_, err := transport.RoundTrip(request(ctx, t, "POST", "https://api.test/a", "bytes"))
			return err
		}
		uses := func(n int) {
			for range n {
				require.ErrorContains(t, send(t.Context()), "no more tries")
			}
			require.ErrorContains(t, send(t.Context()), "budget of tries is used up")
		}
		uses(2)
		base.answers = []any{answer(200)}
		for range 7 { // the rest has come in meanwhile
			require.NoError(t, send(t.Context()))
		}
		base.answers = []any{errReset}
		uses(1)

		// Who waits for his turn may be too late.
		transport.MaxWait = time.Second
		require.ErrorIs(t, send(idemclient.WithKey(t.Context(), "order-1", time.Now().Add(300*time.Millisecond-24*time.Hour))),
			idemclient.ErrOutcomeUnknown)

		// Nobody waits for a turn that comes after his deadline; to wait for an operation that runs needs none.
		base.sent, base.answers = nil, []any{errReset, errReset, answer(409, "Idempotency-Refused", "in_progress"), answer(201), errReset}
		transport.Budget, transport.MaxWait = 1, time.Minute
		require.ErrorContains(t, send(t.Context()), "no more tries")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.NoError(t, send(ctx))
		require.ErrorContains(t, send(ctx), "budget of tries is used up")

		transport.Budget = -1
		for range 20 {
			require.ErrorContains(t, send(t.Context()), "no more tries")
		}
	})
}
