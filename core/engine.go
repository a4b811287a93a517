package core

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// Engine holds what all guards of a service share: the store, the hooks, and the renewal of leases. Build
// it once, with [New]. It is safe for concurrent use. It need not be closed: without runs and waiters it has no
// goroutines.
type Engine struct {
	store        store.Store
	watcher      store.Watcher  // nil if the store has none
	local        bool           // its calls never block
	inProcess    bool           // no other process reaches its records
	recaller     store.Recaller // nil if the store has none
	user         UserSource
	prefix       string
	storeTimeout time.Duration
	observer     func(context.Context, Event)
	refuse       func(context.Context, *Refusal) *Response
	runs         runs
	cleanups     chan struct{} // bounds the releases that follow a failed Acquire
	waitsMu      sync.Mutex
	waits        map[Key]*wait // each has callers
	waiterCalls  chan struct{} // bounds the store calls of waiters; nil for a local store
}

// New returns an engine. It reports every fault of c at once, each as a *[ConfigError].
func New(c Config) (*Engine, error) {
	f := faults{of: "Config"}
	if v := reflect.ValueOf(c.Store); v.Kind() == reflect.Pointer && v.IsNil() {
		f.add("Store", "is a nil %T; was there an error when it was made?", c.Store)
	}
	f.addIf(c.User.fault != "", "User", "%s", c.User.fault)
	f.addIf(c.StoreTimeout < 0, "StoreTimeout", "is negative: %v", c.StoreTimeout)
	_, inProcess := c.Store.(store.InProcess)
	inProcess = inProcess || c.Store == nil
	prefix := c.prefix(&f, inProcess)
	if err := f.err(); err != nil {
		return nil, err
	}
	e := &Engine{
		store:        c.Store,
		inProcess:    inProcess,
		user:         c.User,
		prefix:       prefix,
		storeTimeout: c.StoreTimeout,
		observer:     c.Observe,
		refuse:       c.Refuse,
		cleanups:     make(chan struct{}, maxCleanups),
		waits:        map[Key]*wait{},
	}
	if e.store == nil {
		e.store, _ = memstore.New(memstore.Options{}) // the zero Options has no fault
	}
	if e.storeTimeout == 0 {
		e.storeTimeout = defaultStoreTimeout
	}
	e.watcher, _ = e.store.(store.Watcher)
	_, e.local = e.store.(store.Local)
	if r, ok := e.store.(store.Recaller); ok && r.RecallsFor(e.store) {
		e.recaller = r
	}
	if !e.local {
		e.waiterCalls = make(chan struct{}, maxWaiterCalls)
	}
	if e.inProcess && e.observer != nil {
		e.observer(context.Background(), Event{Kind: StoreIsLocal})
	}
	return e, nil
}

// MustNew is [New] for a configuration that is fixed in the program. It panics with the faults.
func MustNew(c Config) *Engine {
	e, err := New(c)
	if err != nil {
		panic(err)
	}
	return e
}
