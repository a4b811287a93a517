package idemclient_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// sent is a request as a server has got it.
type sent struct {
	at                     time.Time
	method, url, key, body string
	keys                   int // lines
	length                 int64
	hasGetBody, noBody     bool
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// script answers tries one after the other, without a network. The last answer is that of all further ones.
type script struct {
	answers []any // *http.Response, error, or func(*http.Request) (*http.Response, error)

	mu     sync.Mutex
	sent   []sent
	bodies []*watched // of the answers
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	var keys []string
	for name, values := range r.Header {
		if strings.EqualFold(name, "Idempotency-Key") {
			keys = append(keys, values...)
		}
	}
	now := sent{at: time.Now(), method: r.Method, url: r.URL.String(), key: strings.Join(keys, ","), keys: len(keys),
		length: r.ContentLength, hasGetBody: r.GetBody != nil, noBody: r.Body == nil || r.Body == http.NoBody}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		now.body = string(body)
	}
	s.mu.Lock()
	s.sent = append(s.sent, now)
	answer := s.answers[min(len(s.sent), len(s.answers))-1]
	s.mu.Unlock()
	switch answer := answer.(type) {
	case error:
		return nil, answer
	case func(*http.Request) (*http.Response, error):
		r = r.WithContext(r.Context())
		r.Body = io.NopCloser(strings.NewReader(now.body))
		return answer(r)
	}
	resp := *answer.(*http.Response)
	resp.Header = resp.Header.Clone()
	body := &watched{Reader: strings.NewReader(resp.Status)}
	resp.Body = body
	s.mu.Lock()
	s.bodies = append(s.bodies, body)
	s.mu.Unlock()
	return &resp, nil
}

// answer is a response with fields, pairs of name and value; "body" is one, too.
func answer(status int, fields ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: make(http.Header), ContentLength: -1}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "body" {
			resp.Status = fields[i+1]
		} else {
			resp.Header.Set(fields[i], fields[i+1])
		}
	}
	return resp
}

// watched is a body that counts how often it is closed.
type watched struct {
	io.Reader
	mu     sync.Mutex
	closed int
}

func (w *watched) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
	if c, ok := w.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
