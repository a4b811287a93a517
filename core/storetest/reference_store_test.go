package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core/store"
)

// referenceStore is a store of the simplest kind: a map under one mutex. Without a fault it
// keeps the contract; with one it breaks it in the way that the fault's name says,
// so that the suite can be seen to notice.
type referenceStore struct {
	mu      sync.Mutex
	clock   *Clock
	items   map[string]*item
	order   []string // keys in the order of creation
	room    int      // 0: no bound
	created int
	buffer  []byte // what "one buffer for all" writes into
	fault   string
}

type item struct {
	claim    store.Claim
	former   []store.Owner
	attempt  uint64
	free     bool // without an owner: any claim gets it; with one: it was so before the claim
	done     bool
	result   []byte
	lease    time.Time // the end of the lease
	end      time.Time // from when on the record is forgotten
	watchers []chan struct{}
}

// past has the participles of the calls, for the faults' names.
var past = map[string]string{"renew": "renewed", "complete": "completed", "release": "released", "abandon": "abandoned"}

var (
	_ store.Store   = (*referenceStore)(nil)
	_ store.Watcher = (*referenceStore)(nil)
	_ store.Local   = (*referenceStore)(nil)

	_ store.Recaller = (*referenceStore)(nil)
)

func newReferenceStore(fault string, room int) *referenceStore {
	return &referenceStore{clock: NewClock(), items: map[string]*item{}, room: room, fault: fault}
}

func (s *referenceStore) Local() {}

// faulty reports whether the reference store has one of these faults.
func (s *referenceStore) faulty(names ...string) bool {
	for _, name := range names {
		if _, known := faults[name]; !known {
			panic("storetest: no such fault: " + name)
		}
	}
	return slices.Contains(names, s.fault)
}

// gap lets others in where a store that takes two steps would.
func (s *referenceStore) gap() {
	s.mu.Unlock()
	time.Sleep(100 * time.Microsecond)
	s.mu.Lock()
}

func (s *referenceStore) key(key string) string {
	switch {
	case s.faulty("folds keys' case"):
		return strings.ToLower(key)
	case s.faulty("trims keys"):
		return strings.TrimRight(key, " ")
	case s.faulty("ends keys at NUL"):
		key, _, _ = strings.Cut(key, "\x00")
	case s.faulty("normalises keys"):
		return strings.ReplaceAll(key, "e\u0301", "\u00e9")
	case s.faulty("reads hash tags"):
		if _, after, ok := strings.Cut(key, "{"); ok {
			if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
				return tag
			}
		}
	case s.faulty("cuts keys at 255") && len(key) > 255:
		return key[:255]
	case s.faulty("knows no empty key") && key == "":
		return " "
	}
	return key
}

func (s *referenceStore) at(key string) *item {
	r := s.items[s.key(key)]
	if r == nil || !s.clock.Now().Before(r.end) {
		return nil
	}
	return r
}

func (s *referenceStore) held(key string, owner store.Owner, call string) *item {
	r := s.at(key)
	if r == nil {
		return nil
	}
	same := r.claim.Owner == owner && (!owner.IsZero() || s.faulty("the zero owner holds what nobody does"))
	switch {
	case s.faulty("anybody may " + call):
		same = true
	case s.faulty("compares half the owner"):
		same = bytes.Equal(r.claim.Owner[:8], owner[:8])
	case s.faulty("folds owners' case"):
		same = bytes.EqualFold(r.claim.Owner[:], owner[:])
	case s.faulty("former owners count"):
		same = same || slices.Contains(r.former, owner)
	}
	if !same || r.done && !s.faulty("finished records can be "+past[call]) {
		return nil
	}
	if s.faulty("lapsed claims can't be "+past[call]) && !s.clock.Now().Before(r.lease) {
		return nil
	}
	return r
}

func (s *referenceStore) wake(r *item, by string) {
	if s.faulty("wakes nobody by " + by) {
		return
	}
	for i, c := range r.watchers {
		switch {
		case i > 0 && s.faulty("wakes one watcher only"):
		case s.faulty("sends where it should close"):
			c <- struct{}{}
		default:
			close(c)
		}
	}
	r.watchers = nil
}

func (s *referenceStore) hasRoom() bool {
	if s.room == 0 {
		return true
	}
	if s.faulty("never gives room back") {
		return s.created < s.room
	}
	if !s.faulty("the dead take up room") {
		for key, r := range s.items {
			if !s.clock.Now().Before(r.end) {
				delete(s.items, key)
			} else if s.faulty("looks for the dead until it meets with the living") {
				break
			}
		}
	}
	if len(s.items) >= s.room && s.faulty("drops the oldest record when full") {
		for _, key := range s.order {
			delete(s.items, key)
			if len(s.items) < s.room {
				break
			}
		}
	}
	if s.faulty("drops what is abandoned when full") {
		for key, r := range s.items {
			if len(s.items) >= s.room && r.claim.Owner.IsZero() {
				delete(s.items, key)
			}
		}
	}
	return len(s.items) < s.room
}

// claim makes a record although Acquire refuses.
func (s *referenceStore) claim(key string, c store.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items[s.key(key)] = &item{claim: c, attempt: 1, end: s.clock.Now().Add(long)}
}

func (s *referenceStore) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	switch err := ctx.Err(); {
	case err == nil, s.faulty("acquires whatever the context says"):
	case s.faulty("claims, then looks at the context"):
		s.claim(key, c)
		fallthrough
	default:
		return store.Grant{}, err
	}
	switch err := c.Validate(); {
	case err == nil,
		c.Owner.IsZero() && s.faulty("takes a claim without an owner"),
		c.Lease <= 0 && s.faulty("takes a claim without a lease"),
		c.Retention < 0 && s.faulty("takes a claim with a negative retention"),
		len(c.Fingerprint) > 64 && s.faulty("takes a claim with a long fingerprint"):
	case s.faulty("claims, then looks at the claim"):
		s.claim(key, c)
		fallthrough
	default:
		return store.Grant{}, err
	}
	if s.faulty("counts in milliseconds") && c.Lease < time.Millisecond {
		return store.Grant{}, errors.New("invalid expire time")
	}
	if s.faulty("keeps the lock as long as the result") {
		c.Lease += c.Retention
	}
	if s.faulty("ends leases a second late") {
		c.Lease += time.Second
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, free := s.clock.Now(), false
	r := s.at(key)
	if r != nil && s.faulty("looking prolongs") {
		r.end = r.end.Add(time.Second)
		r.lease = r.lease.Add(time.Second)
	}
	if r != nil && s.faulty("keeps the latest fingerprint") {
		r.claim.Fingerprint = c.Fingerprint
	}
	forgotten := r == nil && s.items[s.key(key)] != nil
	if r == nil && s.faulty("looks, then locks", "locks in the process only") || forgotten && s.faulty("looks, then begins anew") {
		s.gap()
	}
	switch {
	case r == nil:
		if !s.hasRoom() {
			if s.faulty("is full without ErrFull") {
				return store.Grant{}, errors.New("no room")
			}
			return store.Grant{}, store.ErrFull
		}
		r = &item{claim: c, attempt: 1}
		if s.faulty("counts attempts from 0") {
			r.attempt = 0
		}
		if s.faulty("attempts survive a release") && s.items[s.key(key)] != nil {
			r.attempt = s.items[s.key(key)].attempt + 1
		}
		s.items[s.key(key)] = r
		s.order = append(s.order, s.key(key))
		s.created++
	case r.done:
		g := s.grant(store.Done, r, r.end.Sub(now))
		if g.Result = r.result; !s.faulty("hands out its own bytes") {
			g.Result = bytes.Clone(r.result)
		}
		if s.faulty("forgets the fingerprint of what is done") {
			g.Fingerprint = ""
		}
		if s.faulty("forgets the attempt of what is done") {
			g.Attempt = 1
		}
		if s.faulty("tells the lease of what is done") {
			g.Remaining = r.lease.Sub(now)
		}
		return g, nil
	case now.Before(r.lease):
		if s.faulty("lets its own owner in again") && r.claim.Owner == c.Owner || s.faulty("takes over what is running") && c.Takeover {
			return store.Grant{State: store.Acquired, Attempt: r.attempt}, nil
		}
		return s.grant(store.Running, r, r.lease.Sub(now)), nil
	case r.claim.Owner.IsZero() && r.free && !s.faulty("what is free is abandoned"):
		if s.faulty("gives what is free for the same parameters only") && c.Fingerprint != r.claim.Fingerprint ||
			s.faulty("gives what is free to takeovers only") && !c.Takeover ||
			s.faulty("gives what is free for its own number only") && c.Attempt != 0 && c.Attempt != r.attempt {
			return s.grant(store.Abandoned, r, r.end.Sub(now)), nil
		}
		if s.faulty("what was free keeps its fingerprint") {
			c.Fingerprint = r.claim.Fingerprint
		}
		if s.faulty("what is free is not counted") {
			r.attempt--
		}
		free = !s.faulty("does not tell what was free")
		r.claim = c
		r.attempt++
	case r.claim.Owner.IsZero() && s.faulty("lets nobody have what is abandoned"):
		return s.grant(store.Abandoned, r, r.end.Sub(now)), nil
	case r.claim.Owner.IsZero() && s.faulty("lets anybody have what is abandoned"):
		r.claim = c
		r.attempt++
	case !c.Takeover && !s.faulty("takes over unasked"),
		c.Fingerprint != r.claim.Fingerprint && !s.faulty("takes over with other parameters"),
		c.Attempt != r.attempt && (c.Attempt != 0 || s.faulty("takes over named attempts only")) && !s.faulty("takes over any attempt"):
		return s.grant(store.Abandoned, r, r.end.Sub(now)), nil
	default:
		if s.room > 0 && len(s.items) >= s.room && s.faulty("takeover needs room") {
			return store.Grant{}, store.ErrFull
		}
		if s.faulty("looks, then takes over") {
			s.gap()
		}
		if s.faulty("takeover keeps the first retention") {
			c.Retention = r.claim.Retention
		}
		if s.faulty("takeover keeps the first lease") {
			c.Lease = r.claim.Lease
		}
		r.former = append(r.former, r.claim.Owner)
		r.claim, r.free = c, r.free && s.faulty("a takeover leaves free what was free")
		if s.faulty("takes over in two steps") {
			s.gap()
		}
		if !s.faulty("takeover does not count") {
			r.attempt++
		}
		s.wake(r, "takeover")
	}
	r.lease = now.Add(c.Lease)
	r.end = r.lease.Add(c.Retention)
	if s.faulty("never forgets the abandoned") {
		r.end = r.end.Add(1000 * long)
	}
	if s.faulty("counts a claim's retention from its beginning") {
		r.end = now.Add(max(c.Lease, c.Retention))
	}
	if s.faulty("tells the new owner of a fingerprint") {
		return s.grant(store.Acquired, r, 0), nil
	}
	return store.Grant{State: store.Acquired, Attempt: r.attempt, Free: free || r.attempt > 1 && s.faulty("calls every later claim free")}, nil
}

func (s *referenceStore) grant(state store.State, r *item, remaining time.Duration) store.Grant {
	if s.faulty("tells what remains in milliseconds") {
		remaining /= time.Millisecond
	}
	if s.faulty("tells the lease of what is abandoned") && state == store.Abandoned {
		remaining = r.lease.Sub(s.clock.Now())
	}
	return store.Grant{State: state, Attempt: r.attempt, Fingerprint: r.claim.Fingerprint, Remaining: remaining}
}

func (s *referenceStore) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	if err := ctx.Err(); err != nil && !s.faulty("renews whatever the context says") {
		return err
	}
	if lease <= 0 && s.faulty("calls a renewal without a lease lost") {
		return store.ErrLost
	}
	if lease <= 0 && !s.faulty("renews for any lease") {
		return errors.New("a lease must be longer than zero")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.held(key, owner, "renew")
	if r == nil {
		if s.faulty("renewing nothing succeeds") && s.at(key) == nil {
			return nil
		}
		return store.ErrLost
	}
	if s.faulty("renews nothing") {
		return nil
	}
	if s.faulty("looks, then renews") {
		s.gap()
		s.items[s.key(key)] = r
	}
	end := s.clock.Now().Add(lease)
	if s.faulty("renews to later only") && end.Before(r.lease) {
		return nil
	}
	if s.faulty("renewing adds to the lease") {
		end = r.lease.Add(lease)
	}
	r.lease = end
	r.end = end.Add(r.claim.Retention)
	if s.faulty("renewing drops the retention") {
		r.end = end
	}
	return nil
}

func (s *referenceStore) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	if err := ctx.Err(); err != nil && !s.faulty("completes whatever the context says") {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.held(key, owner, "complete")
	if r == nil {
		if s.faulty("completes what is not there") && s.at(key) == nil {
			s.items[s.key(key)] = &item{claim: store.Claim{Owner: owner}, attempt: 1, done: true, end: s.clock.Now().Add(retention)}
			return nil
		}
		return store.ErrLost
	}
	if s.faulty("looks, then completes") {
		s.gap()
	}
	if retention <= 0 {
		if s.faulty("no retention means for ever") {
			retention = 1000 * long
		} else {
			s.letGo(key, r, "completion")
			return nil
		}
	}
	r.done = true
	if s.faulty("completes in two steps") {
		s.gap()
	}
	r.result = bytes.Clone(result)
	switch {
	case s.faulty("keeps the caller's bytes"):
		r.result = result
	case s.faulty("ends results at NUL"):
		r.result, _, _ = bytes.Cut(r.result, []byte{0})
	case s.faulty("keeps results as text"):
		r.result = bytes.ToValidUTF8(r.result, nil)
	case s.faulty("cuts results at 64 KiB"):
		r.result = r.result[:min(len(r.result), 1<<16)]
	case s.faulty("one buffer for all"):
		s.buffer = append(s.buffer[:0], result...)
		r.result = s.buffer
	}
	if !s.faulty("forgets results with the claim") {
		r.end = s.clock.Now().Add(retention)
	}
	if s.faulty("counts a result's retention from the end of the lease") {
		r.end = r.lease.Add(retention)
	}
	if s.faulty("never forgets results") {
		r.end = r.end.Add(1000 * long)
	}
	s.wake(r, "completion")
	return nil
}

func (s *referenceStore) Release(ctx context.Context, key string, owner store.Owner) error {
	if err := ctx.Err(); err != nil && !s.faulty("releases whatever the context says") {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.held(key, owner, "release")
	if r == nil {
		if s.faulty("releasing nothing succeeds") && s.at(key) == nil {
			return nil
		}
		if s.faulty("releases, then looks at the owner") {
			delete(s.items, s.key(key))
		}
		return store.ErrLost
	}
	s.letGo(key, r, "release")
	return nil
}

func (s *referenceStore) Abandon(ctx context.Context, key string, owner store.Owner) error {
	if err := ctx.Err(); err != nil && !s.faulty("abandons whatever the context says") {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.held(key, owner, "abandon")
	if r == nil {
		if s.faulty("abandoning nothing succeeds") && s.at(key) == nil {
			return nil
		}
		return store.ErrLost
	}
	if s.faulty("looks, then abandons") {
		s.gap()
	}
	if r.attempt <= 1 && s.faulty("forgets a first attempt that is abandoned") {
		delete(s.items, s.key(key))
		s.wake(r, "abandoning")
		return nil
	}
	now := s.clock.Now()
	lapsed := !now.Before(r.lease)
	r.lease = now
	switch {
	case s.faulty("remembers what is abandoned until its lease would have passed"):
	case s.faulty("remembers what is abandoned late since its lease has passed") && lapsed:
	default:
		r.end = now.Add(r.claim.Retention)
	}
	if s.faulty("keeps what is abandoned without retention") && r.claim.Retention == 0 {
		r.end = now.Add(long)
	}
	r.free = r.free && s.faulty("abandoning leaves free what was free")
	if s.faulty("abandons in two steps") {
		s.gap()
	}
	if !s.faulty("what is abandoned stays its owner's") {
		r.claim.Owner = store.Owner{}
	}
	if s.faulty("forgets the fingerprint of what is abandoned") {
		r.claim.Fingerprint = ""
	}
	s.wake(r, "abandoning")
	return nil
}

// letGo ends a run that has nothing to keep but, after a takeover, its number.
func (s *referenceStore) letGo(key string, r *item, by string) {
	switch {
	case s.faulty("attempts survive a release"):
		r.end = time.Time{}
	case r.attempt <= 1, s.faulty("forgets the attempt at a release"),
		by == "completion" && s.faulty("forgets the attempt at a completion without retention"):
		delete(s.items, s.key(key))
	default:
		now := s.clock.Now()
		switch {
		case by == "completion" && !s.faulty("completing without retention abandons"):
			r.free = true
		case s.faulty("a release frees"):
			r.free = true
		case s.faulty("a release abandons what was free"):
			r.free = false
		}
		if !s.faulty("what is released stays its owner's") {
			r.claim.Owner = store.Owner{}
		}
		r.lease = now
		if s.faulty("forgets the fingerprint of what is released") {
			r.claim.Fingerprint = ""
		}
		if !s.faulty("remembers what is released until its lease would have passed") {
			r.end = now.Add(r.claim.Retention)
		}
		if s.faulty("never forgets what is free") && r.free {
			r.end = now.Add(1000 * long)
		}
		if s.faulty("wakes nobody by releasing what was taken over") {
			return
		}
	}
	s.wake(r, by)
}

// RecallsFor includes a storeClient, which looks at the records past its link.
func (s *referenceStore) RecallsFor(of store.Store) bool {
	c, is := of.(*storeClient)
	return is && c.referenceStore == s || s.faulty("recalls for what embeds it")
}

func (s *referenceStore) Recall(key []byte) (g store.Grant, raw uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.at(string(key))
	if s.faulty("recalls what has passed") {
		r = s.items[s.key(string(key))]
	}
	if r == nil || !r.done && !s.faulty("recalls what is not finished") {
		return store.Grant{}, 0, false
	}
	g = s.grant(store.Done, r, r.end.Sub(s.clock.Now()))
	if g.Result = r.result; !s.faulty("recalls its own bytes") {
		g.Result = bytes.Clone(r.result)
	}
	if s.faulty("recalls the first claim") && r.attempt > 1 {
		return g, 7, true
	}
	return g, r.claim.Raw, true
}

func (s *referenceStore) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if err := ctx.Err(); err != nil && !s.faulty("watches whatever the context says") {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.at(key)
	c := make(chan struct{}, 1) // room for what "sends where it should close" sends
	switch {
	case s.faulty("hands out no stop"):
		return c, nil, nil
	case r == nil || r.done:
		if !s.faulty("watches nothing for ever") {
			close(c)
		}
		return c, func() {}, nil
	case s.faulty("wakes all the time"):
		close(c)
		return c, func() {}, nil
	case s.faulty("watches no abandoned run") && !s.clock.Now().Before(r.lease):
		return c, func() {}, nil
	}
	r.watchers = append(r.watchers, c)
	if s.faulty("needs a goroutine for each watcher, for ever") {
		go func() { <-c }()
	}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.faulty("panics at a second stop") && !slices.Contains(r.watchers, c) {
			panic("no such watcher")
		}
		if s.faulty("one watcher gives up for all") {
			r.watchers = nil
		}
		r.watchers = slices.DeleteFunc(r.watchers, func(w chan struct{}) bool {
			return w == c && !s.faulty("needs a goroutine for each watcher, for ever")
		})
	}, nil
}
