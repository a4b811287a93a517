package idemclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/retry"
)

// Transport is an [http.RoundTripper] that sends each request to a guarded host until it has an answer, under one Idempotency-Key. The
// package documentation says how it handles each answer.
//
// The zero value only passes requests on. Do not copy a Transport, and do not change its fields once it is in use. It is safe for
// concurrent use.
type Transport struct {
	// Hosts are the guarded hosts: those whose services accept an Idempotency-Key. Each is a name, which stands for all its ports, or
	// a name with a port. Wildcards are not allowed. A dot at the end of a name makes no difference. Requests to other hosts are
	// passed on to Base, as are CONNECT and requests for a protocol upgrade. Empty: no host is guarded.
	Hosts []string
	// Base sends the requests. Nil: [http.DefaultTransport].
	Base http.RoundTripper
	// MaxTries is how many times a request is sent at most. Requests that find the operation running on the server do not count.
	// Zero: 5. One: no retries.
	MaxTries int
	// TryTimeout is how long a try may take, from the last part of the body that was sent until the header of the response is there
	// and, of JSON, the part that is read before it is returned. Set it longer than the slowest answer: when a try times out, the
	// service sees that its client has left, and ends the handler after a while (core.Policy.Linger: a minute). TryTimeout does not
	// apply to bodies that can be sent only once. Zero: 30 s. Negative: no limit.
	TryTimeout time.Duration
	// MaxWait is the longest pause between two tries. Zero: 30 s.
	MaxWait time.Duration
	// KeyLifetime is how long after a key was first sent it may be sent again. It must not be longer than the service keeps its
	// results. An Idempotency-Key-Expires in an answer replaces it. Zero: 24 h.
	KeyLifetime time.Duration
	// Budget is how many retries per second one of the Hosts gets from all callers together. The first try of each request does not
	// count, and ten answers from the host add one retry. When the budget is used up, callers wait for their turn, up to MaxWait.
	// Zero: 10. Negative: no limit.
	Budget int
	// Retry500 makes the transport try again after a 500. Set it if the service does not replay a 500.
	Retry500 bool
	// Observe is called after each try, also concurrently. Nil: no calls.
	Observe func(Try)

	once  sync.Once
	hosts []host
	fault error
}

// Try describes one try to [Transport.Observe].
type Try struct {
	// Request is what was sent. Do not change it.
	Request *http.Request
	// ResendCount is the number of earlier tries (OpenTelemetry's http.request.resend_count), including those that net/http has made by
	// itself.
	ResendCount int
	// Response is the answer. Do not change it, and do not read its body. Nil: Err says why there is none.
	Response *http.Response
	Err      error
	// Pause is the time until the next try. Zero: this is the last.
	Pause time.Duration
}

const (
	defaultTries       = 5
	defaultTryTimeout  = 30 * time.Second
	defaultMaxWait     = 30 * time.Second
	defaultKeyLifetime = 24 * time.Hour
	defaultBudget      = 10
)

// RoundTrip implements [http.RoundTripper]. It closes r's body and changes nothing else in r. Its error is an [*Error], unless r could
// not be sent at all or was only passed on.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.base()
	if r.URL == nil {
		return base.RoundTrip(r) // which says so
	}
	h, err := t.guarded(r.URL)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	if h != nil || earlier(r) != nil {
		r = spelled(r)
	}
	changed := changesMethod(r)
	if h != nil && changed || earlier(r) != nil && (h == nil || retry.IsSafe(r.Method)) {
		r = withoutKey(r)
	}
	if h == nil || changed || isTry(r) || isNoExchange(r) {
		return base.RoundTrip(r)
	}
	c := &call{t: t, host: h, r: r, length: r.ContentLength}
	if err := c.open(); err != nil {
		_ = c.close()
		return nil, err
	}
	policy := retry.Policy{MaxTries: cmp.Or(t.MaxTries, defaultTries), MaxWait: cmp.Or(t.MaxWait, defaultMaxWait)}
	if c.once {
		policy.MaxTries = 1
	}
	last, why := policy.Do(r.Context(), c)
	if why == retry.Stands && last.Err == nil {
		h.budget.answered(t.perSecond())
		return last.Response, nil
	}
	return nil, c.giveUp(last, why)
}

// CloseIdleConnections closes those of Base. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// isTry reports whether r is a try of another Transport.
func isTry(r *http.Request) bool {
	o := retry.FromContext(r.Context())
	return o != nil && o.Key == r.Header.Get(keyHeader) && (o.Key != "" || retry.IsSafe(r.Method))
}

// isNoExchange reports whether r asks for something else than one answer of an HTTP server.
func isNoExchange(r *http.Request) bool {
	return r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" || r.URL.Scheme != "http" && r.URL.Scheme != "https"
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// call is one request and its tries, as [retry.Request].
type call struct {
	t     *Transport
	host  *host
	r     *http.Request
	outer retry.Outer

	length  int64  // ContentLength
	kept    []byte // the body, or the beginning of one that is sent only once. Nil: r has it
	hasBody bool
	once    bool // the body can't be read again
	opened  bool // r.Body is in use
	closed  sync.Once

	request *http.Request // the last try
	read    []byte        // the beginning of its answer
	tries   int
	last    retry.Try // what it has brought
	lost    bool      // there is no body for another one
}

// maxKept is the length of the longest body that is kept in memory, in bytes.
const maxKept = 1 << 20

// open finds out the key and the body of all tries.
func (c *call) open() error {
	if err := retry.Check(c.r); err != nil {
		return fmt.Errorf("idemclient: %w", err)
	}
	if err := c.setKey(); err != nil {
		return err
	}
	if err := c.openBody(); err != nil {
		return err
	}
	if c.IsExpired(0) {
		return c.giveUp(retry.Try{}, retry.Expired)
	}
	return nil
}

// openBody finds out how to send the body several times.
func (c *call) openBody() error {
	r := c.r
	c.hasBody = r.Body != nil && r.Body != http.NoBody
	if !c.hasBody || r.GetBody != nil {
		return nil
	}
	if c.once = r.ContentLength > maxKept; c.once {
		return nil
	}
	stop := context.AfterFunc(r.Context(), func() { _ = c.close() }) // which ends the reading
	var err error
	c.kept, err = io.ReadAll(io.LimitReader(r.Body, maxKept+1))
	if !stop() {
		return context.Cause(r.Context())
	}
	if err != nil {
		return fmt.Errorf("idemclient: reading the body: %w", err)
	}
	if c.once = len(c.kept) > maxKept; c.once {
		return nil
	}
	if err := c.close(); err != nil {
		return fmt.Errorf("idemclient: closing the body: %w", err)
	}
	if length := int64(len(c.kept)); r.ContentLength > 0 && length != r.ContentLength {
		return fmt.Errorf("idemclient: the body has %d bytes, but ContentLength is %d", length, r.ContentLength)
	} else if len(r.Trailer) == 0 { // which only a body of unknown length has
		c.length, c.hasBody = length, length > 0
	}
	return nil
}

// close closes r's body, which no try has got, once.
func (c *call) close() (err error) {
	c.closed.Do(func() {
		if c.r.Body != nil {
			err = c.r.Body.Close()
		}
	})
	return err
}

// body returns the body of the next try.
func (c *call) body() (io.ReadCloser, error) {
	first := !c.opened
	c.opened = true
	switch {
	case c.once && c.kept != nil:
		return withClose(io.MultiReader(bytes.NewReader(c.kept), c.r.Body), c.r.Body), nil
	case c.kept != nil:
		return io.NopCloser(bytes.NewReader(c.kept)), nil
	case first:
		return c.r.Body, nil
	}
	return c.r.GetBody()
}

// Send makes one try.
func (c *call) Send() retry.Try {
	try := c.send()
	if c.lost && c.last.Err != nil {
		try.Err = fmt.Errorf("%w: %w", c.last.Err, try.Err)
	} else if c.lost {
		try.Response = c.last.Response
	}
	c.last = try
	return try
}

func (c *call) send() retry.Try {
	began := time.Now()
	c.request, c.read, c.outer.Apart, c.outer.Fault = nil, nil, 0, nil
	ctx, cancel := context.WithCancelCause(retry.NewContext(c.r.Context(), &c.outer))
	resp, verdict, err := c.roundTrip(ctx, cancel)
	if cause := context.Cause(ctx); cause != nil { // then the body can't be read, either
		if _, ours := cause.(errTryTimeout); ours || err == nil {
			err, verdict = cause, retry.Again
		}
	}
	if err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		cancel(nil)
		return retry.Try{Err: err, Verdict: verdict, Apart: c.outer.Apart}
	}
	if expires, ok := retry.Until(resp, resp.Header.Get(expiresHeader)); ok {
		c.outer.Lifetime = began.Add(expires).Sub(c.outer.First)
	}
	resp.Body = &body{c.read, resp.Body, cancel}
	return retry.Try{Response: resp, Verdict: verdict, Apart: c.outer.Apart}
}

// roundTrip makes the request of a try, sends it, and judges what comes, all within the time limit.
func (c *call) roundTrip(ctx context.Context, cancel context.CancelCauseFunc) (*http.Response, retry.Verdict, error) {
	var limit *time.Timer
	timeout := cmp.Or(c.t.TryTimeout, defaultTryTimeout)
	if timeout > 0 && !c.once {
		limit = time.AfterFunc(timeout, func() { cancel(errTryTimeout(timeout)) })
		defer limit.Stop()
	}
	var began *atomic.Int64 // how often net/http has begun to send it. Nil: once
	if c.outer.Key != "" && !c.hasBody {
		// net/http may send it again by itself. A body that is empty, but not nil, would prevent that; but over HTTP/2 it
		// would be one of unknown length.
		n := new(atomic.Int64)
		ctx, began = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { n.Add(1) }}), n
	}
	var long *sending
	r := c.r.WithContext(ctx)
	r.Header = r.Header.Clone()
	if r.Header == nil {
		r.Header = make(http.Header, 1)
	}
	if c.outer.Key != "" && r.Header.Get(keyHeader) == "" {
		r.Header.Set(keyHeader, c.outer.Key)
	}
	r.ContentLength = c.length
	if c.hasBody {
		// Without GetBody, net/http does not send it again by itself.
		r.GetBody = nil
		var err error
		if r.Body, err = c.body(); err != nil {
			c.lost = true
			return nil, retry.Final, fmt.Errorf("reading the body again: %w", err)
		}
		if c.length < 0 || c.length > inOneGo {
			long = &sending{ReadCloser: r.Body, limit: limit, timeout: timeout}
			defer long.stop()
			r.Body = long
		}
	} else if r.Body != nil {
		r.Body = http.NoBody
	}
	c.request = r
	resp, err := c.t.base().RoundTrip(r)
	if c.outer.Fault == nil {
		if c.tries++; began != nil {
			c.tries += int(max(began.Load()-1, 0))
		}
	}
	if err != nil {
		if _, never := errors.AsType[*tls.CertificateVerificationError](err); never || c.outer.Fault != nil {
			return nil, retry.Final, err
		}
		if n := c.bodyLength(long); n > c.length {
			return nil, retry.Final, fmt.Errorf("the body has more bytes than ContentLength, which is %d: %w", c.length, err)
		} else if n < c.length {
			return nil, retry.Final, fmt.Errorf("the body has %d bytes, but ContentLength is %d: %w", n, c.length, err)
		}
		return nil, retry.Again, err
	}
	if resp == nil {
		return nil, retry.Final, errNothing
	}
	if resp.Request == nil {
		resp.Request = r
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	if err := c.readAnswer(resp); err != nil {
		return resp, retry.Again, err
	}
	return resp, c.judge(resp), nil
}

var errNothing = errors.New("idemclient: Transport.Base has returned no response and no error")

// bodyLength returns how many bytes the body has, but no more than one beyond ContentLength; where it is not known, ContentLength.
func (c *call) bodyLength(long *sending) int64 {
	if !c.hasBody || c.kept != nil || c.length < 0 {
		return c.length
	}
	if long != nil {
		return long.bytes(c.length)
	}
	body, err := c.r.GetBody()
	if err != nil {
		return c.length
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(body, c.length+1))
	if err != nil {
		return c.length
	}
	return n
}

// maxAnswer is how much of an answer is read before it is returned, in bytes.
const maxAnswer = 64 << 10

// readAnswer reads the beginning of an answer that will soon end: one that breaks off is none.
func (c *call) readAnswer(resp *http.Response) (err error) {
	switch n := resp.ContentLength; {
	case c.outer.Key == "":
	case 0 < n && n <= maxAnswer:
		c.read = make([]byte, n)
		_, err = io.ReadFull(resp.Body, c.read)
	case n < 0 && isJSON(resp):
		c.read, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	}
	return err
}

func isJSON(resp *http.Response) bool {
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// judge says what an answer means, whose beginning was read.
func (c *call) judge(resp *http.Response) retry.Verdict {
	switch resp.Header.Get(refusedHeader) {
	case "in_progress":
		return retry.Running
	case "rate_limited", "store_unavailable", "shutting_down", "unfinished":
		return retry.Again
	}
	if retry.IsTransient(resp.StatusCode) || c.t.Retry500 && resp.StatusCode == http.StatusInternalServerError {
		return retry.Again
	}
	var members any
	if resp.StatusCode == http.StatusConflict && isJSON(resp) && json.Unmarshal(c.read, &members) == nil && saysInFlight(members) {
		return retry.Running
	}
	return retry.Final
}

// saysInFlight reports whether a member "code" of a JSON value, at any depth, says that the operation is running: as in the
// Agentic Commerce Protocol, the Ad Context Protocol, and at Stripe.
func saysInFlight(value any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, saysInFlight)
	case map[string]any:
		switch code, _ := v["code"].(string); strings.ToLower(code) {
		case "idempotency_in_flight", "idempotency_key_in_use":
			return true
		}
		for _, member := range v {
			if saysInFlight(member) {
				return true
			}
		}
	}
	return false
}

// Reserve takes the next try out of the host's budget.
func (c *call) Reserve(within time.Duration) (time.Duration, bool) {
	return c.host.budget.take(c.t.perSecond(), within)
}

func (t *Transport) perSecond() int { return cmp.Or(t.Budget, defaultBudget) }

// Observe tells of a try.
func (c *call) Observe(try retry.Try, pause time.Duration) {
	if c.t.Observe != nil && c.request != nil && c.outer.Fault == nil {
		c.t.Observe(Try{Request: c.request, ResendCount: c.tries - 1, Response: try.Response, Err: try.Err, Pause: pause})
	}
}

// giveUp returns the error that says why there is no answer.
func (c *call) giveUp(last retry.Try, why retry.Why) error {
	retry.Detach(last.Response)
	e := &Error{Key: c.outer.Key, FirstSent: c.outer.First, Tries: c.tries, Response: last.Response}
	switch why {
	case retry.Stands:
		if e.why = "another try would not help"; c.lost {
			e.why = "the body can't be read again"
		}
	case retry.NoTries:
		if e.why = "no more tries"; c.once {
			e.why = "the body can't be read again"
		}
	case retry.TooLong:
		e.why = "the server asks to wait too long"
	case retry.NoTime:
		e.why = "the deadline comes before the next try"
	case retry.NoBudget:
		e.why = "the host's budget of tries is used up"
	case retry.Expired:
		e.why, e.causes = "not sent again", append(e.causes, ErrOutcomeUnknown)
	}
	if ended := context.Cause(c.r.Context()); ended != nil {
		e.why = "the context has ended"
		if !errors.Is(last.Err, ended) {
			e.causes = append(e.causes, ended)
		}
	}
	if last.Err != nil {
		e.causes = append(e.causes, last.Err)
	}
	return e
}

// body is that of a response, of which the beginning was read. The context of its try ends when it is closed.
type body struct {
	read   []byte
	rest   io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *body) Read(p []byte) (int, error) {
	if len(b.read) == 0 {
		return b.rest.Read(p)
	}
	n := copy(p, b.read)
	b.read = b.read[n:]
	return n, nil
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.rest.Close() // maybe during a Read
}

// inOneGo is the length of the longest body that is sent at once, in bytes: its parts are not watched.
const inOneGo = 64 << 10

// sending is the body of a request whose try may take longer as long as it is being sent.
type sending struct {
	io.ReadCloser
	mu      sync.Mutex
	limit   *time.Timer // nil: there is none, or the try is over
	timeout time.Duration
	read    int64
	ended   bool
}

// bytes returns how many bytes the body has, if so many were read that it is not length.
func (s *sending) bytes(length int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.read > length {
		return s.read
	}
	return length
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.ended = s.read+int64(n), err == io.EOF
	if s.limit != nil {
		s.limit.Reset(s.timeout)
	}
	return n, err
}

func (s *sending) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = nil
}

// withClose returns a body that reads r, and closes c.
func withClose(r io.Reader, c io.Closer) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{r, c}
}

// errTryTimeout is what ends a try that takes too long.
type errTryTimeout time.Duration

func (e errTryTimeout) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(e)) }

// Timeout reports that this is an error of time, as in [net.Error].
func (errTryTimeout) Timeout() bool { return true }
