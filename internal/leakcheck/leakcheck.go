// Package leakcheck makes requests of which every byte says whose it is, and checks what comes
// back and what is kept of them. Adapters use it to show that the memory they use again never
// carries anything of one customer to another.
package leakcheck

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// Route and KeyRoute are what an adapter serves with the handler of this package: Route with
// a key made of parameters, KeyRoute with the client's. ":id" is in the framework's own
// spelling.
const (
	Route    = "/parameters/:id"
	KeyRoute = "/keys/:id"
)

// Seen is what a handler has seen of a request. Every part of it must be a copy.
type Seen struct {
	ID, Query, User, Key string
	Body                 []byte
}

// Answer is what a handler answers with: status 201, the three header fields, and Body.
type Answer struct {
	ContentType, Location, Echo string
	Body                        []byte
}

// Of returns the answer to what was seen. All of that is in the answer, so that a handler
// that has seen another's request gives it away.
func Of(s Seen) Answer {
	return Answer{
		ContentType: "application/x-" + s.ID,
		Location:    "/seen/" + s.ID + "?" + s.Query,
		Echo:        s.User + " " + s.Key,
		Body:        append([]byte(s.ID+" "+s.Query+" "+s.User+" "+s.Key+" "), s.Body...),
	}
}

// Run is a round of requests: each is sent once, and then once more, by
// many at a time and in another order.
type Run struct {
	// Requests is how many different ones there are.
	Requests int
	// Send sends a request, and returns the response. It is called concurrently.
	Send func(*http.Request) (*Response, error)
	// Poison, unless nil, overwrites what lies in the adapter's pools. It is called
	// concurrently, while requests are under way and in between.
	Poison func()
}

// Response is what a client has got.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Engine returns an engine whose store checks what it gets, for [Run.Test].
func Engine(t testing.TB) (*core.Engine, *Store) {
	t.Helper()
	inner, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	s := &Store{Store: inner, kept: map[string]stored{}}
	return core.MustNew(core.Config{Store: s, User: core.UserFromHeader("X-User")}), s
}

// Guards returns the guards for Route and KeyRoute. Results stand for as long as the slowest machine takes.
func Guards(e *core.Engine) (parameters, key *core.Guard) {
	return e.MustGuard(core.Policy{Record: core.Record{Retention: 24 * time.Hour}}),
		e.MustGuard(core.Policy{Key: core.Header(core.Required)})
}

// Store is an in-process store that remembers what it was handed.
type Store struct {
	*memstore.Store
	mu    sync.Mutex
	kept  map[string]stored
	asked []asked
}

type stored struct{ key, result string }

// asked is what an Acquire was called with, as it was handed over: if its memory is used
// again, that shows.
type asked struct{ key, copied, fingerprint, copiedFingerprint string }

// Acquire implements store.Store.
func (s *Store) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	s.mu.Lock()
	s.asked = append(s.asked, asked{key, string([]byte(key)), c.Fingerprint, string([]byte(c.Fingerprint))})
	s.mu.Unlock()
	return s.Store.Acquire(ctx, key, c)
}

// Capabilities implements store.Store.
func (s *Store) Capabilities() store.Capabilities {
	can := s.Store.Capabilities()
	can.Recall, can.RecallFor = s.recall, s
	return can
}

// recall writes down what is found. The rest goes on to Acquire.
func (s *Store) recall(key []byte) (store.Grant, uint64, bool) {
	g, raw, ok := s.Store.Capabilities().Recall(key)
	if ok {
		s.mu.Lock()
		s.asked = append(s.asked, asked{string(key), string(key), g.Fingerprint, string([]byte(g.Fingerprint))})
		s.mu.Unlock()
	}
	return g, raw, ok
}

// Complete implements store.Store.
func (s *Store) Complete(ctx context.Context, key string, o store.Owner, result []byte, d time.Duration) error {
	s.mu.Lock()
	s.kept[string([]byte(key))] = stored{key, string(result)}
	s.mu.Unlock()
	return s.Store.Complete(ctx, key, o, result, d)
}

// unit is what the bodies of request i are made of.
func unit(i int) string { return "<" + strconv.Itoa(i) + ">" }

// seen returns what the handler must see of request i. Neighbours have bodies of different
// lengths, so that each overwrites a part of the one before, and some are larger than what
// is pooled.
func seen(i int) Seen {
	n := 1 + i*7919%97
	switch {
	case i%100 == 99:
		n = 15_000
	case i%10 >= 8: // adapters may hand them on in the memory into which they were read
		n = 150 + i*7919%1201
	}
	s := Seen{
		ID:    fmt.Sprintf("id-%d", i),
		Query: fmt.Sprintf("q%d=%d", i, i),
		User:  fmt.Sprintf("user-%d", i),
		// The members are out of order, so that key derivation copies them.
		Body: fmt.Appendf(nil, `{"z":%q,"a":%d}`, bytes.Repeat([]byte(unit(i)), n), i),
	}
	if i%2 == 1 {
		s.Key = fmt.Sprintf("key-%d", i)
	}
	return s
}

func request(s Seen) *http.Request {
	path := "/parameters/"
	if s.Key != "" {
		path = "/keys/"
	}
	r, err := http.NewRequest(http.MethodPost, "http://example.com"+path+s.ID+"?"+s.Query, bytes.NewReader(s.Body))
	if err != nil {
		panic(err) // unreachable: the URL is well-formed
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User", s.User)
	if s.Key != "" {
		r.Header.Set("Idempotency-Key", s.Key)
	}
	return r
}

// Test sends the requests and checks every response and every record, byte for byte.
func (run Run) Test(t *testing.T, records *Store) {
	t.Helper()
	order := rand.New(rand.NewPCG(1, 2)).Perm(run.Requests)
	run.round(t, order, "")
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
	run.round(t, order, "true")
	if t.Failed() {
		return
	}

	// The keys, derived one after the other in memory that is used for nothing else.
	parameters, byKey := Guards(core.MustNew(core.Config{User: core.UserFromHeader("X-User")}))
	type operation struct {
		fingerprint string
		answer      Answer
	}
	want := map[string]operation{}
	for i := range run.Requests {
		s := seen(i)
		r := core.Request{Method: http.MethodPost, Route: Route, PathParams: []adapter.Pair{{Name: "id", Value: s.ID}},
			RawQuery: s.Query, ContentType: "application/json", Headers: headers(request(s).Header), Body: s.Body}
		guard := parameters
		if s.Key != "" {
			guard, r.Route = byKey, KeyRoute
		}
		key, fingerprint, err := guard.Key(&r)
		require.NoError(t, err)
		want[key.Raw()] = operation{fingerprint, Of(s)}
	}
	require.Len(t, want, run.Requests)

	require.Len(t, records.asked, 2*run.Requests)
	for _, a := range records.asked {
		require.Equal(t, a.copied, a.key, "the key has changed since it was handed over")
		require.Equal(t, a.copiedFingerprint, a.fingerprint, "the fingerprint has changed since it was handed over")
		op, is := want[a.key]
		require.True(t, is, "%q is nobody's key", a.key)
		require.Equal(t, op.fingerprint, a.fingerprint)
	}
	require.Len(t, records.kept, run.Requests)
	for key, kept := range records.kept {
		require.Equal(t, key, kept.key)
		require.Equal(t, record(want[key].answer), kept.result, "the record under %s", key)
		grant, err := records.Store.Acquire(t.Context(), key, store.Claim{Owner: store.NewOwner(), Lease: time.Second})
		require.NoError(t, err)
		require.Equal(t, store.Done, grant.State)
		require.Equal(t, kept.result, string(grant.Result), "the record under %s has changed", key)
	}
}

// round sends each request of order once.
func (run Run) round(t *testing.T, order []int, replayed string) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				at := next.Add(1) - 1
				if at >= int64(len(order)) || t.Failed() {
					return
				}
				s := seen(order[at])
				resp, err := run.Send(request(s))
				if run.Poison != nil {
					run.Poison()
				}
				if err != nil {
					t.Errorf("%s: %v", s.ID, err)
					return
				}
				want := Of(s)
				switch h := resp.Header; {
				case resp.Status != http.StatusCreated || h.Get(core.ReplayedHeader) != replayed:
					t.Errorf("%s: status %d, replayed %q: %.200s", s.ID, resp.Status, h.Get(core.ReplayedHeader), resp.Body)
				case h.Get("Content-Type") != want.ContentType || h.Get("Location") != want.Location || h.Get("X-Echo") != want.Echo:
					t.Errorf("%s has got another's header: %v", s.ID, h)
				case !bytes.Equal(resp.Body, want.Body):
					t.Errorf("%s has got another's body: %.300q", s.ID, resp.Body)
				}
			}
		})
	}
	wg.Wait()
}

// Bodies are the bodies that handlers have kept hold of: by GetBody, a request of net/http
// gives its body away for good. The zero Bodies is ready for use.
type Bodies struct {
	mu   sync.Mutex
	kept map[string]func() (io.ReadCloser, error)
}

// Keep keeps the body of the request with the ID id. It may be called concurrently.
func (b *Bodies) Keep(id string, body func() (io.ReadCloser, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = map[string]func() (io.ReadCloser, error){}
	}
	b.kept[strings.Clone(id)] = body
}

// Check checks that all bodies are still what was sent. It is called after [Run.Test].
func (b *Bodies) Check(t *testing.T, requests int) {
	t.Helper()
	require.Len(t, b.kept, requests)
	for i := range requests {
		s := seen(i)
		body, err := b.kept[s.ID]()
		require.NoError(t, err)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, string(s.Body), string(got), "the body that the handler of %s has kept", s.ID)
	}
}

// record is what must be stored of a, as package core writes it down.
func record(a Answer) string {
	b := binary.AppendUvarint([]byte{2}, http.StatusCreated)
	for _, f := range []core.Field{{Name: "Content-Type", Value: a.ContentType}, {Name: "Location", Value: a.Location},
		{Name: "X-Echo", Value: a.Echo}} {
		for _, s := range []string{f.Name, f.Value} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return string(append(append(b, 0), a.Body...))
}

type headers http.Header

func (h headers) Header(name string, i int) (string, int) {
	if i >= len(h[name]) {
		return "", len(h[name])
	}
	return h[name][i], len(h[name])
}
