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
	can          store.Capabilities // the store's, and Recall only if it may be used
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
	if c.Store == nil {
		c.Store, _ = memstore.New(memstore.Config{}) // the zero Config has no fault
	}
	can := store.Capabilities{InProcess: true} // of a nil store, so that its fault does not bring another
	if v := reflect.ValueOf(c.Store); v.Kind() == reflect.Pointer && v.IsNil() {
		f.add("Store", "is a nil %T; was there an error when it was made?", c.Store)
	} else {
		can = c.Store.Capabilities()
	}
	f.addIf(c.User.fault != "", "User", "%s", c.User.fault)
	f.addIf(c.StoreTimeout < 0, "StoreTimeout", "is negative: %v", c.StoreTimeout)
	prefix := c.prefix(&f, can.InProcess)
	if err := f.err(); err != nil {
		return nil, err
	}
	if can.RecallFor != c.Store {
		can.Recall = nil
	}
	e := &Engine{
		store:        c.Store,
		can:          can,
		user:         c.User,
		prefix:       prefix,
		storeTimeout: c.StoreTimeout,
		observer:     c.Observe,
		refuse:       c.Refuse,
		cleanups:     make(chan struct{}, maxCleanups),
		waits:        map[Key]*wait{},
	}
	if e.storeTimeout == 0 {
		e.storeTimeout = defaultStoreTimeout
	}
	if !can.Local {
		e.waiterCalls = make(chan struct{}, maxWaiterCalls)
	}
	if can.InProcess && e.observer != nil {
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
