package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/store"
)

// storeClient is what one process has of the reference store that it shares with others: a handle on
// the records, at the end of a link. Its faults are those that it takes two processes,
// or a broken link, to see.
type storeClient struct {
	*referenceStore
	link    *link
	process sync.Mutex // of "locks in the process only"
	seen    sync.Map   // what "answers from a cache" has there
}

// link is the way from the clients to the reference store.
type link struct {
	broken atomic.Int32   // so many calls will fail
	late   sync.WaitGroup // calls on the way
	kept   sync.Map       // calls that "delivers twice" will make again, by key
}

var errLink = errors.New("the link is broken")

// disturb breaks the link for some calls.
func (d *storeClient) disturb() {
	if d.faulty("loses completions at a restart") {
		d.mu.Lock()
		for _, r := range d.items {
			r.done, r.result = false, nil
		}
		d.mu.Unlock()
	}
	d.link.broken.Store(clients)
}

// across makes a call across the link. One that fails is lost on the way there, or its
// answer on the way back, or it arrives later.
func (d *storeClient) across(ctx context.Context, key string, call func(context.Context) (store.Grant, error)) (store.Grant, error) {
	if d.link.broken.Add(-1) < 0 {
		return call(ctx)
	}
	later := func() {
		d.link.late.Go(func() {
			time.Sleep(rand.N(time.Millisecond))
			_, _ = call(context.WithoutCancel(ctx))
		})
	}
	switch rand.IntN(3) {
	case 0:
		if d.faulty("acknowledges what did not arrive") {
			return store.Grant{State: store.Acquired, Attempt: 1}, nil
		}
	case 1:
		later()
	default:
		g, err := call(ctx)
		switch {
		case d.faulty("tries again"):
			return call(ctx)
		case d.faulty("takes over from itself"):
			d.mu.Lock()
			if r := d.at(key); r != nil && !r.done {
				r.lease = d.clock.Now()
			}
			d.mu.Unlock()
			return call(ctx)
		case d.faulty("delivers twice") && err == nil && g.State == store.Acquired:
			d.link.kept.Store(key, func() { _, _ = call(context.WithoutCancel(ctx)) })
		}
	}
	return store.Grant{}, errLink
}

func (d *storeClient) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	if d.faulty("locks in the process only") {
		d.process.Lock()
		defer d.process.Unlock()
	}
	if g, known := d.seen.Load(key); known && d.faulty("answers from a cache") {
		return g.(store.Grant), nil
	}
	g, err := d.across(ctx, key, func(ctx context.Context) (store.Grant, error) {
		return d.referenceStore.Acquire(ctx, key, c)
	})
	if err == nil && g.State == store.Running && g.Remaining > long/2 {
		d.seen.Store(key, g)
	}
	return g, err
}

func (d *storeClient) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	d.seen.Delete(key)
	_, err := d.across(ctx, key, func(ctx context.Context) (store.Grant, error) {
		return store.Grant{}, d.referenceStore.Renew(ctx, key, owner, lease)
	})
	return err
}

func (d *storeClient) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	d.seen.Delete(key)
	_, err := d.across(ctx, key, func(ctx context.Context) (store.Grant, error) {
		return store.Grant{}, d.referenceStore.Complete(ctx, key, owner, result, retention)
	})
	return err
}

func (d *storeClient) Release(ctx context.Context, key string, owner store.Owner) error {
	d.seen.Delete(key)
	_, err := d.across(ctx, key, func(ctx context.Context) (store.Grant, error) {
		return store.Grant{}, d.referenceStore.Release(ctx, key, owner)
	})
	d.again(key, err)
	return err
}

func (d *storeClient) Abandon(ctx context.Context, key string, owner store.Owner) error {
	d.seen.Delete(key)
	_, err := d.across(ctx, key, func(ctx context.Context) (store.Grant, error) {
		return store.Grant{}, d.referenceStore.Abandon(ctx, key, owner)
	})
	d.again(key, err)
	return err
}

// again makes a call that was kept once more, when what it claimed has been given up.
func (d *storeClient) again(key string, err error) {
	if call, kept := d.link.kept.LoadAndDelete(key); kept && err == nil {
		call.(func())()
	}
}
