// Package memstore is the in-process store: the one that an engine uses when it is
// given none. It suits a service that runs as a single process, and tests. Its
// records are gone when the process ends.
//
//	engine, err := core.New(core.Config{}) // a memstore with the default bounds
//
// To set bounds, make one:
//
//	store, err := memstore.New(memstore.Options{MaxEntries: 100_000, MaxBytes: 64 << 20})
//	if err != nil {
//		return err
//	}
//	engine, err := core.New(core.Config{Store: store})
//
// # Bounds
//
// The store holds at most Options.MaxEntries records (default 1,048,576) that take
// at most Options.MaxBytes bytes (default 512 MiB). A record counts with its key,
// its fingerprint, its result and 192 bytes for itself, so that MaxBytes is close to
// the memory that the store takes. When a bound is reached, records whose time has
// passed make room first; if there are none, Acquire (or Complete, for a result that
// does not fit) returns core.ErrStoreFull. A record that stands is never dropped.
//
// # Expiry
//
// A lease or a retention ends when its time has passed by the store's clock, to the
// nanosecond. The memory is taken back a few records at a time by later calls: there
// is no goroutine, nothing to close, and no call that pays for a long sweep. A store
// that nobody calls keeps what it has. Setting the machine's clock changes nothing,
// for time is monotonic.
//
// # Waiting
//
// The store implements core.Watcher: a duplicate that waits is woken when the run
// ends. It implements core.Local: its calls never block on anything outside the
// process.
package memstore

import "github.com/idem-go/idem/core/internal/memory"

// Store is an in-process store. It implements core.Store, core.Watcher and
// core.Local. All methods are safe for concurrent use.
//
// Beside these, Len returns how many records the store holds and Bytes what they
// count against Options.MaxBytes, both including records whose time has passed and
// that no call has removed yet.
//
// The zero Store is not usable; make one with [New].
type Store = memory.Store

// Options sets a store's bounds and clock. The zero Options is valid.
//
//   - MaxEntries (int) is how many records the store holds at most, running and
//     finished. Zero means 1,048,576.
//   - MaxBytes (int64) is how many bytes the records may take. Zero means 512 MiB.
//   - Now (func() time.Time) is the store's clock. Nil means time.Now. It is called
//     with a lock held, must not call the store, and must be safe for concurrent use.
type Options = memory.Options

// New returns an empty store. It returns an error, which names every fault, if
// o.MaxEntries or o.MaxBytes is negative, or MaxEntries is over 2,147,483,647.
func New(o Options) (*Store, error) { return memory.New(o) }
