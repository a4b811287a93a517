package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/idem-go/idem/core/store"
)

// tolerance is how far off what remains may be where the clock can be moved: the
// store may count in steps of a millisecond, or let its clock run on between two
// calls of Advance. All spans in the model are whole seconds, longer than that.
const tolerance = time.Second / 2

// model is a store in the fewest words: one record, one clock, no bounds, nobody
// else. The suite compares stores with it.
type model struct {
	now     time.Duration
	records map[string]*modelRecord
}

type modelRecord struct {
	claim   store.Claim
	attempt uint64
	free    bool // without an owner: any claim gets it; with one: it was so before the claim
	done    bool
	result  string
	lease   time.Duration // end of the lease
	end     time.Duration // from when on the record is forgotten
}

// at returns the record under key, if it stands.
func (m *model) at(key string) *modelRecord {
	r := m.records[key]
	if r == nil || r.end <= m.now {
		return nil
	}
	return r
}

func (m *model) acquire(key string, c store.Claim) store.Grant {
	r, free := m.at(key), false
	switch {
	case r == nil:
		r = &modelRecord{claim: c, attempt: 1}
		m.records[key] = r
	case r.done:
		return store.Grant{State: store.Done, Attempt: r.attempt, Fingerprint: r.claim.Fingerprint, Result: []byte(r.result), Remaining: r.end - m.now}
	case m.now < r.lease:
		return store.Grant{State: store.Running, Attempt: r.attempt, Fingerprint: r.claim.Fingerprint, Remaining: r.lease - m.now}
	case r.free && r.claim.Owner.IsZero():
		r.claim = c
		r.attempt++
		free = true
	case !c.Takeover || c.Fingerprint != r.claim.Fingerprint || c.Attempt != 0 && c.Attempt != r.attempt:
		return store.Grant{State: store.Abandoned, Attempt: r.attempt, Fingerprint: r.claim.Fingerprint, Remaining: r.end - m.now}
	default:
		r.claim, r.free = c, false
		r.attempt++
	}
	r.lease = m.now + c.Lease
	r.end = r.lease + c.Retention
	return store.Grant{State: store.Acquired, Attempt: r.attempt, Free: free}
}

// held returns the running record under key, if it is owner's.
func (m *model) held(key string, owner store.Owner) *modelRecord {
	r := m.at(key)
	if r == nil || r.done || owner.IsZero() || r.claim.Owner != owner {
		return nil
	}
	return r
}

func (m *model) renew(key string, owner store.Owner, lease time.Duration) error {
	r := m.held(key, owner)
	if r == nil {
		return store.ErrLost
	}
	r.lease = m.now + lease
	r.end = r.lease + r.claim.Retention
	return nil
}

func (m *model) complete(key string, owner store.Owner, result string, retention time.Duration) error {
	r := m.held(key, owner)
	if r == nil {
		return store.ErrLost
	}
	if retention <= 0 {
		r.free = true
		return m.release(key, owner)
	}
	r.done, r.result, r.end = true, result, m.now+retention
	return nil
}

func (m *model) release(key string, owner store.Owner) error {
	r := m.held(key, owner)
	if r == nil {
		return store.ErrLost
	}
	if r.attempt == 1 {
		delete(m.records, key)
		return nil
	}
	return m.end(key, owner, r.free)
}

func (m *model) abandon(key string, owner store.Owner) error { return m.end(key, owner, false) }

// end ends a run without a result, whose record stays.
func (m *model) end(key string, owner store.Owner, free bool) error {
	r := m.held(key, owner)
	if r == nil {
		return store.ErrLost
	}
	r.claim.Owner, r.free = store.Owner{}, free
	r.lease = m.now
	r.end = m.now + r.claim.Retention
	return nil
}

// checkModel runs random calls on the store and on the model, and compares every
// answer. On a clock that can't be moved nothing expires: all spans are hours.
func checkModel(s *env) {
	var run int
	unit, slop := time.Second, tolerance
	if s.Advance == nil {
		unit, slop = time.Hour, time.Minute
	}
	ctx := s.Context()
	rapid.Check(s, func(t *rapid.T) {
		run++
		m := &model{records: map[string]*modelRecord{}}
		key := rapid.Custom(func(t *rapid.T) string {
			// A name space for each run: the store is the same one all along.
			return fmt.Sprintf("%d:%s", run, rapid.SampledFrom([]string{"a", "A", "b"}).Draw(t, "key"))
		})
		owner := rapid.Custom(func(t *rapid.T) store.Owner {
			return store.Owner{rapid.Byte().Filter(func(b byte) bool { return b < 3 }).Draw(t, "owner"), 1}
		})
		span := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 5).Draw(t, "span")) * unit
		})
		actions := map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				key := key.Draw(t, "key")
				c := store.Claim{
					Owner:       owner.Draw(t, "owner"),
					Fingerprint: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "fingerprint"),
					Lease:       span.Draw(t, "lease"),
					Retention:   span.Draw(t, "retention") - unit,
					Takeover:    rapid.Bool().Draw(t, "takeover"),
					Attempt:     rapid.SampledFrom([]uint64{0, 0, 1, 2, 3}).Draw(t, "attempt"),
					Raw:         rapid.Uint64Range(0, 2).Draw(t, "raw"),
				}
				got, err := s.Store.Acquire(ctx, key, c)
				if err != nil {
					t.Fatalf("Acquire: %v", err)
				}
				compare(t, got, m.acquire(key, c), slop)
			},
			"renew": func(t *rapid.T) {
				key, owner, lease := key.Draw(t, "key"), owner.Draw(t, "owner"), span.Draw(t, "lease")
				compareErrors(t, "Renew", s.Store.Renew(ctx, key, owner, lease), m.renew(key, owner, lease))
			},
			"complete": func(t *rapid.T) {
				key, owner := key.Draw(t, "key"), owner.Draw(t, "owner")
				result := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "result")
				retention := span.Draw(t, "retention") - unit
				compareErrors(t, "Complete", s.Store.Complete(ctx, key, owner, result, retention), m.complete(key, owner, string(result), retention))
			},
			"release": func(t *rapid.T) {
				key, owner := key.Draw(t, "key"), owner.Draw(t, "owner")
				compareErrors(t, "Release", s.Store.Release(ctx, key, owner), m.release(key, owner))
			},
			"abandon": func(t *rapid.T) {
				key, owner := key.Draw(t, "key"), owner.Draw(t, "owner")
				compareErrors(t, "Abandon", s.Store.Abandon(ctx, key, owner), m.abandon(key, owner))
			},
		}
		if s.Advance != nil {
			actions["pass"] = func(t *rapid.T) {
				d := span.Draw(t, "time")
				s.Advance(d)
				m.now += d
			}
		}
		if s.can.Recall != nil {
			actions["recall"] = func(t *rapid.T) {
				key := key.Draw(t, "key")
				got, raw, ok := s.can.Recall([]byte(key))
				record := m.at(key)
				if want := record != nil && record.done; ok != want {
					t.Fatalf("Recall: a record %v, want %v", ok, want)
				}
				if ok {
					compare(t, got, m.acquire(key, store.Claim{}), slop)
				}
				if ok && raw != record.claim.Raw {
					t.Fatalf("Recall: of the claim %d, want %d", raw, record.claim.Raw)
				}
			}
		}
		if s.can.Watch != nil {
			actions["watch"] = func(t *rapid.T) {
				key := key.Draw(t, "key")
				changed, stop, err := s.can.Watch(ctx, key)
				if err != nil {
					t.Fatalf("Watch: %v", err)
				}
				defer stop()
				if r := m.at(key); r == nil || r.done {
					ctx, cancel := context.WithTimeout(ctx, patience)
					defer cancel()
					select {
					case <-changed:
					case <-ctx.Done():
						t.Fatal("Watch where nothing runs did not return at once")
					}
				}
			}
		}
		t.Repeat(actions)
	})
}

func compare(t *rapid.T, got, want store.Grant, slop time.Duration) {
	if got.State != want.State || got.Attempt != want.Attempt || got.Free != want.Free || got.Fingerprint != want.Fingerprint || string(got.Result) != string(want.Result) {
		t.Fatalf("Acquire: got %+v, want %+v", got, want)
	}
	if d := got.Remaining - want.Remaining; want.State != store.Acquired && (d < -slop || d > slop) {
		t.Fatalf("Acquire: %v remain of a record that is %v, want %v", got.Remaining, got.State, want.Remaining)
	}
}

func compareErrors(t *rapid.T, call string, got, want error) {
	if !errors.Is(got, want) {
		t.Fatalf("%s: got %v, want %v", call, got, want)
	}
}
