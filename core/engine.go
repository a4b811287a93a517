package core

import (
	"context"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core/internal/sealed"
	"github.com/idem-go/idem/core/internal/view"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// Engine holds what all guards of a service share: the store, the hooks, and the renewal of leases. Build it once, with [New]. It
// is safe for concurrent use. It need not be closed: without runs and waiters it has no goroutines. ([Engine.Drain] ends the work
// on unsettled runs.)
type Engine struct {
	shown
	store        *sealed.Store      // around that of the Config
	can          store.Capabilities // the store's
	user         UserSource
	prefix       string
	secrets      []ringSecret  // newest first
	digests      *keyedDigests // nil: there is no Config.Seal
	creator      string
	remark       func(context.Context) string
	storeTimeout time.Duration
	observer     func(context.Context, Event)
	observeStore func(context.Context, string, time.Duration, error)
	refuse       func(context.Context, *Refusal) *Response
	runs         runs
	late         lateRuns
	cleanups     chan struct{} // bounds the releases that follow a failed Acquire
	waitsMu      sync.Mutex
	waits        map[Key]*wait // each has callers
	waiterCalls  chan struct{} // bounds the store calls of waiters; nil for a local store
}

// shown has an unexported name, so that embedding it adds no exported one to Engine.
type shown = view.Embedded[Event]

// New returns an engine. It reports every fault of c at once, each as a *[ConfigError].
func New(c Config) (*Engine, error) {
	f := faults{of: "Config"}
	if c.Store == nil {
		c.Store, _ = memstore.New(memstore.Config{}) // the zero Config has no fault
	}
	can := store.Capabilities{InProcess: true} // of a nil store, so that its fault does not bring another
	if v := reflect.ValueOf(c.Store); v.Kind() == reflect.Pointer && v.IsNil() {
		f.add("Store", "is a nil %T; was there an error when it was made?", c.Store)
	} else {
		can = c.Store.Capabilities()
		f.addIf(len(c.Secrets) > 0 && can.Fail == nil, "Secrets",
			"have no effect with a %T: to keep a record for the next attempt, a store needs the capabilities Checkpoint and Fail", c.Store)
	}
	f.addIf(c.User.fault != "", "User", "%s", c.User.fault)
	f.addIf(c.UnsettledLimit < 0, "UnsettledLimit", "is negative: %d", c.UnsettledLimit)
	f.addIf(c.StoreTimeout < 0, "StoreTimeout", "is negative: %v", c.StoreTimeout)
	prefix, secrets := c.prefix(&f, can.InProcess), newRing(&f, "Secrets", c.Secrets)
	ring, digests := c.sealing(&f)
	if err := f.err(); err != nil {
		return nil, err
	}
	records := sealed.New(c.Store, ring)
	e := &Engine{
		store:        records,
		can:          records.Capabilities(),
		user:         c.User,
		prefix:       prefix,
		secrets:      secrets,
		digests:      digests,
		creator:      creator(),
		remark:       c.Remark,
		storeTimeout: c.StoreTimeout,
		observer:     c.Observe,
		observeStore: c.ObserveStore,
		refuse:       c.Refuse,
		cleanups:     make(chan struct{}, maxCleanups),
		waits:        map[Key]*wait{},
	}
	if e.late.limit = c.UnsettledLimit; e.late.limit == 0 {
		e.late.limit = defaultUnsettledLimit
	}
	if e.storeTimeout == 0 {
		e.storeTimeout = defaultStoreTimeout
	}
	e.shown = e.forOperators()
	if !can.Local {
		e.waiterCalls = make(chan struct{}, maxWaiterCalls)
	}
	if can.InProcess && e.observer != nil {
		e.observer(context.Background(), Event{Kind: StoreIsLocal})
	}
	return e, nil
}

// forOperators returns what package operations sees of the engine.
func (e *Engine) forOperators() shown {
	v := view.View[Event]{
		Store: e.store, Prefix: e.prefix,
		Observe: func(ctx context.Context, key string, ev Event) {
			if e.observer != nil {
				ev.Key = Key{key}
				e.observer(ctx, ev)
			}
		},
		Encode: func(r *Response) []byte {
			own := *r
			own.Header = canonical(own.Header)
			return appendResponse(nil, &own, &HeaderFilter{})
		},
		EncodeValue: func(value []byte) []byte { return append([]byte{resultValue}, value...) },
		Decode: func(result []byte) (r Response, ok bool) {
			if ok = decodeResponse(&r, result); ok {
				r.Header = r.Header[:len(r.Header)-1] // it is no replay
			}
			return r, ok
		},
	}
	if !e.can.Local {
		v.Timeout = e.storeTimeout
	}
	return view.Embed(v)
}

// creator names this process for those who look at a store.
func creator() string {
	host, _ := os.Hostname() // only for people
	return store.Note(host + " " + strconv.Itoa(os.Getpid()))
}

// remarkOf returns what the record of an operation remarks.
func (e *Engine) remarkOf(ctx context.Context, id *identity) string {
	if e.remark != nil {
		return store.Note(e.remark(ctx))
	}
	if id.request != nil && id.request.Headers != nil {
		// version-traceid-parentid-flags, see https://www.w3.org/TR/trace-context/#traceparent-header
		if field, lines := id.request.Headers.Header("Traceparent", 0); lines == 1 && len(field) >= 55 && field[2] == '-' &&
			field[35] == '-' && strings.Trim(field[3:35], "0123456789abcdef") == "" {
			return strings.Clone(field[3:35])
		}
	}
	return ""
}

// MustNew is [New] for a configuration that is fixed in the program. It panics with the faults.
func MustNew(c Config) *Engine {
	e, err := New(c)
	if err != nil {
		panic(err)
	}
	return e
}
