package faults_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/storetest"
)

// trial is what clients ask for under one fault, what they are told, and what really
// happens.
type trial struct {
	t      *testing.T
	ledger *ledger
	client *http.Client
	trace  string // see traced

	mu      sync.Mutex
	during  func(operation string, attempt uint64) // called by a handler after it has written into the ledger
	answers []string                               // each once, in order of first appearance
	paid    map[string]bool                        // operations that were answered with success
	bodies  map[string]string                      // the last one of each operation
}

func newTrial(t *testing.T) *trial {
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	t.Cleanup(transport.CloseIdleConnections)
	return &trial{t: t, ledger: &ledger{runs: map[string][]uint64{}}, client: &http.Client{Transport: transport, Timeout: patience},
		paid: map[string]bool{}, bodies: map[string]string{}}
}

// traced returns the file for the calls that processes make of their store, which are checked when all have ended.
func (tr *trial) traced() (path string) {
	if tr.trace == "" {
		tr.trace = filepath.Join(tr.t.TempDir(), "trace")
		tr.t.Cleanup(func() {
			trace, err := os.Open(tr.trace)
			if assert.NoError(tr.t, err) {
				assert.NoError(tr.t, storetest.CheckTrace(trace))
				assert.NoError(tr.t, trace.Close())
			}
		})
	}
	return tr.trace
}

// while sets what happens in the middle of a handler. Nil means nothing.
func (tr *trial) while(during func(operation string, attempt uint64)) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.during = during
}

// execute is what the handlers do.
func (tr *trial) execute(operation string, attempt uint64) {
	tr.ledger.add(operation, attempt)
	tr.mu.Lock()
	during := tr.during
	tr.mu.Unlock()
	if during != nil {
		during(operation, attempt)
	}
}

func (tr *trial) note(answer, operation string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !slices.Contains(tr.answers, answer) {
		tr.answers = append(tr.answers, answer)
	}
	if strings.HasPrefix(answer, "201") || strings.HasPrefix(answer, "done") {
		tr.paid[operation] = true
	}
}

// body returns what stood in the last answer about an operation.
func (tr *trial) body(operation string) string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.bodies[operation]
}

// report adds up what has become of the operations, compares it with want, and enters it
// into the table.
func (tr *trial) report(section, fault, store string, want tally, operations ...string) {
	tr.t.Helper()
	var got tally
	for _, op := range operations {
		n := tr.ledger.of(op)
		got.executions += n
		got.duplicates += max(0, n-1)
		if tr.paid[op] && n == 0 {
			got.losses++
		}
	}
	require.Equal(tr.t, want, got, fault)
	report(tr.t, section, row{fault, store, len(operations), got, strings.Join(tr.answers, ", ")})
}

// service is a service under trial, wherever it runs. Each operation is a payment with a
// client key.
type service struct {
	*trial
	url string
}

// send asks for an operation once, as a client does, and returns the summary of the answer:
// "201", "201 replayed", "409 in_progress", "503 store_unavailable", … or "none" if the
// connection broke.
func (s *service) send(operation string) string {
	s.t.Helper()
	summary := s.ask(operation)
	s.note(summary, operation)
	return summary
}

// gets is send, and expects an answer.
func (s *service) gets(want, operation string) {
	s.t.Helper()
	require.Equal(s.t, want, s.send(operation))
}

// sent is send, beside what the caller does.
func (s *service) sent(operation string) <-chan string {
	answer := make(chan string, 1)
	go func() { answer <- s.send(operation) }()
	return answer
}

// until asks for an operation again and again, as a client that retries, until the answer is
// want. How often it gets another one depends on the time that this takes, and is not noted.
func (s *service) until(want, operation string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got := s.ask(operation)
		if got == want {
			s.note(want, operation)
			return
		}
		require.True(s.t, time.Now().Before(deadline), "still %s, want %s", got, want)
	}
}

func (s *service) ask(operation string) (summary string) {
	s.t.Helper()
	summary, body := s.request(operation)
	if summary != "none" {
		s.mu.Lock()
		s.bodies[operation] = body
		s.mu.Unlock()
	}
	return summary
}

// request asks for an operation, and returns the body, too.
func (s *service) request(operation string) (summary, body string) {
	s.t.Helper()
	path := "/payments"
	if strings.HasPrefix(operation, "task") {
		path = "/tasks"
	}
	req, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(`{"amount":5}`))
	if !assert.NoError(s.t, err) {
		return err.Error(), ""
	}
	req.Header.Set("X-User", "ann")
	req.Header.Set("Idempotency-Key", operation)
	resp, err := s.client.Do(req)
	if err != nil {
		return "none", ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "none", ""
	}
	return summarise(resp, text), string(text)
}

// summarise is the status of a response, followed by the code of a refusal or by "replayed".
func summarise(resp *http.Response, body []byte) string {
	s := strconv.Itoa(resp.StatusCode)
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var problem struct{ Code string }
		if err := json.Unmarshal(body, &problem); err != nil {
			return s + " " + err.Error()
		}
		s += " " + problem.Code
	}
	if resp.Header.Get("Idempotent-Replayed") != "" {
		s += " replayed"
	}
	return s
}

// ledger notes executions outside of any store.
type ledger struct {
	mu   sync.Mutex
	runs map[string][]uint64 // the attempt numbers, by operation
}

func (l *ledger) add(operation string, attempt uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[operation] = append(l.runs[operation], attempt)
}

// of returns how often an operation ran.
func (l *ledger) of(operation string) int { return len(l.attempts(operation)) }

// attempts returns the attempt numbers of the runs of an operation, in their order.
func (l *ledger) attempts(operation string) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.runs[operation])
}

// tally is what the ledger says about operations.
type tally struct {
	executions int // how often their handlers ran
	duplicates int // executions beyond the first of each operation
	losses     int // operations that were answered with success and did not take effect
}
