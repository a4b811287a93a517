package shop

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/httpidem"
)

// The page /try shows what becomes of payments that are sent more than once. Each button begins a trial: two processes, A
// and B, with one store. They are engines in this process. They have nothing in common with the shop's own engine.

const (
	tryWork  = time.Second     // how long a payment takes
	tryWait  = 2 * time.Second // how long a duplicate waits
	tryLease = 4 * time.Second // for how long a process that has died blocks its payment

	maxTrials   = 256 // remembered; the oldest is forgotten
	maxRequests = 20  // of a trial
)

// TryPage serves the page.
func TryPage(context.Context, *Request) (*Reply, error) {
	return page(http.StatusOK, "try.html", nil), nil
}

// TryScript serves its script.
var TryScript = asset("text/javascript; charset=utf-8", must(files.ReadFile("pages/try.js")))

// NewTry returns what the page's script calls, for all methods and paths below /try/: pay, stop and log. Each request
// names its trial in X-Try-Trial.
func NewTry() http.Handler {
	t := &trials{byID: map[string]*trial{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /try/pay", t.serve((*trial).pay))
	mux.HandleFunc("POST /try/stop", t.serve((*trial).stop))
	mux.HandleFunc("GET /try/log", t.serve((*trial).log))
	return mux
}

type trials struct {
	mu   sync.Mutex
	byID map[string]*trial
	ids  []string // the oldest first
}

var trialID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// serve calls handle with the trial that the request names.
func (t *trials) serve(handle func(*trial, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Try-Trial")
		if !trialID.MatchString(id) {
			http.Error(w, "X-Try-Trial must be 32 hexadecimal digits", http.StatusBadRequest)
			return
		}
		if tr := t.find(strings.Clone(id)); tr.requests.Add(1) > maxRequests {
			http.Error(w, "a trial has at most "+strconv.Itoa(maxRequests)+" requests", http.StatusTooManyRequests)
		} else {
			handle(tr, w, r)
		}
	}
}

// find returns the trial of that id. A new one may cost the oldest its place.
func (t *trials) find(id string) *trial {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := t.byID[id]
	if tr == nil {
		if len(t.ids) == maxTrials {
			delete(t.byID, t.ids[0])
			t.ids = t.ids[1:]
		}
		tr = newTrial()
		t.byID[id], t.ids = tr, append(t.ids, id)
	}
	return tr
}

type trial struct {
	requests  atomic.Int64
	processes map[string]*process

	mu      sync.Mutex
	runs    int
	charges int
	charged map[core.Key]bool // the bank's ledger
	seen    map[int]seen      // by the number that the page gives a request, X-Try-Request
}

// seen is what the engine has said of a request.
type seen struct {
	Event    string `json:"event"`
	Waited   int64  `json:"waited"` // in milliseconds
	Takeover bool   `json:"takeover"`
}

// process stands for one. When it has died, nothing that its engine does reaches the store: its lease is not renewed,
// and its record is neither completed nor released.
type process struct {
	store.Store
	dead   atomic.Bool
	engine *core.Engine
	pay    http.Handler
}

var errDied = errors.New("the process has died")

func (p *process) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	if p.dead.Load() {
		return errDied
	}
	return p.Store.Renew(ctx, key, owner, lease)
}

func (p *process) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	if p.dead.Load() {
		return errDied
	}
	return p.Store.Complete(ctx, key, owner, result, retention)
}

func (p *process) Release(ctx context.Context, key string, owner store.Owner) error {
	if p.dead.Load() {
		return errDied
	}
	return p.Store.Release(ctx, key, owner)
}

func newTrial() *trial {
	records, err := memstore.New(memstore.Config{MaxEntries: maxRequests, MaxBytes: 64 << 10})
	if err != nil {
		panic(err) // these bounds are good
	}
	t := &trial{processes: map[string]*process{}, charged: map[core.Key]bool{}, seen: map[int]seen{}}
	for _, name := range []string{"A", "B"} {
		p := &process{Store: records}
		p.engine = core.MustNew(core.Config{Store: p, User: core.UserFromHeader("X-Try-Customer"), Observe: t.observe})
		policy := core.ClientKey()
		policy.Duplicate, policy.Lease, policy.BodyLimit = core.Wait(tryWait), tryLease, 1<<10
		p.pay = httpidem.New(p.engine.MustGuard(policy))(t.charge(p))
		t.processes[name] = p
	}
	return t
}

// charge returns the handler of p. It charges half-way. With X-Try-Die its process dies right after that, and nobody
// knows of the charge but the bank.
func (t *trial) charge(p *process) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := httpidem.Run(r)
		t.mu.Lock()
		t.runs++
		t.mu.Unlock()
		if sleep(r.Context(), tryWork/2, true) != nil {
			return
		}
		t.mu.Lock()
		// The run before this one may have charged: the handler asks the bank.
		if !run.Takeover() || !t.charged[run.Key()] {
			t.charged[run.Key()] = true
			t.charges++
		}
		t.mu.Unlock()
		if r.Header.Get("X-Try-Die") != "" {
			p.dead.Store(true)
			panic(errDied)
		}
		if sleep(r.Context(), tryWork/2, true) != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(object{"payment_id": newID("pay")}) // an error means that the client has gone
	})
}

type requestNumber struct{}

// pay passes a payment to the process that X-Try-Process names, as a proxy does: one that has died is a bad gateway.
func (t *trial) pay(w http.ResponseWriter, r *http.Request) {
	p := t.processes[r.Header.Get("X-Try-Process")]
	if p == nil || p.dead.Load() {
		http.Error(w, "there is no such process", http.StatusBadGateway)
		return
	}
	defer func() {
		if p.dead.Load() && recover() != nil {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = p.engine.Drain(ended) // the engine gives up what it can't settle any more
			http.Error(w, errDied.Error(), http.StatusBadGateway)
		}
	}()
	number, _ := strconv.Atoi(r.Header.Get("X-Try-Request"))
	p.pay.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestNumber{}, number)))
}

// stop shuts a process down, and answers when its runs have ended.
func (t *trial) stop(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if p := t.processes[r.Header.Get("X-Try-Process")]; p == nil || p.engine.Drain(ctx) != nil {
		http.Error(w, "the process has not stopped", http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// observe notes what becomes of each request.
func (t *trial) observe(ctx context.Context, e core.Event) {
	switch e.Kind {
	case core.Started, core.Replayed, core.Refused:
		if number, ok := ctx.Value(requestNumber{}).(int); ok {
			t.mu.Lock()
			t.seen[number] = seen{e.Kind.String(), e.Waited.Milliseconds(), e.Takeover}
			t.mu.Unlock()
		}
	}
}

// log answers what has happened: {"runs": 1, "charges": 1, "requests": {"1": {"event": "started", …}}}.
func (t *trial) log(w http.ResponseWriter, _ *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(object{"runs": t.runs, "charges": t.charges, "requests": t.seen}) // the client has gone
}
