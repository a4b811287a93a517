package memstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store"
)

// inspector is the store's [store.Inspector]. Each record that stands throughout a list is in it exactly once. A list of
// running and abandoned records has those begun first at its head.
type inspector struct{ *Store }

// Lookup implements [store.Inspector].
func (s inspector) Lookup(ctx context.Context, key string) (store.Record, error) {
	if err := ctx.Err(); err != nil {
		return store.Record{}, err
	}
	sh, hash := s.locate(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.elapsed()
	e := sh.standing(hash, key, now)
	if e == nil {
		return store.Record{}, store.ErrNoRecord
	}
	r := s.record(sh, e, now)
	if r.Size > 0 {
		r.Result = []byte(sh.texts(e).result)
	}
	for _, text := range []*string{&r.Key, &r.Fingerprint, &r.Policy, &r.Creator, &r.Remark} {
		*text = strings.Clone(*text)
	}
	return r, nil
}

// record returns what is known of e, without the result. Its texts are good while the shard is locked.
func (s inspector) record(sh *shard, e *entry, now time.Duration) store.Record {
	t := sh.texts(e)
	r := store.Record{Key: t.key, State: store.Abandoned, Attempt: e.attempt, Fingerprint: t.fingerprint,
		About:     store.About{ID: e.id, Policy: t.policy, Creator: t.creator, Remark: t.remark},
		Remaining: sh.end(e) - now}
	if e.id != (store.ID{}) {
		r.Begun = s.base.Add(e.begun).Round(0) // the monotonic reading means nothing to another process
	}
	switch {
	case e.done:
		r.State = store.Done
		if left := sh.queue[e.place].at - now; left > 0 && !e.expired {
			r.Remaining, r.Size = left, e.result
		} else {
			r.Expired = true
		}
	case now < e.lease:
		r.State, r.Remaining = store.Running, e.lease-now
	case e.free && e.owner.IsZero():
		r.State = store.Free
	}
	return r
}

// place is where a record is in a list.
type place struct {
	major int64 // the shard's number; or when the operation was begun, if the oldest are listed first
	key   string
}

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.major, other.major), cmp.Compare(p.key, other.key))
}

// List implements [store.Inspector]. The cursor is the place of the last record.
func (s inspector) List(ctx context.Context, q store.Query, cursor string) (page []store.Record, next string, err error) {
	oldest := len(q.States) > 0 && !slices.Contains(q.States, store.Done) && !slices.Contains(q.States, store.Free)
	last, first := place{major: math.MinInt64}, 0
	if major, key, ok := strings.Cut(cursor, " "); ok {
		last.key = key
		if last.major, err = strconv.ParseInt(major, 10, 64); err != nil {
			return nil, "", store.ErrCursor
		}
	} else if cursor != "" {
		return nil, "", store.ErrCursor
	}
	if !oldest {
		first = int(min(max(last.major, 0), shardCount))
	}
	var places []place
	for i := first; i < shardCount && (oldest || len(places) <= q.Size()); i++ {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		places = append(places, s.places(i, &q, oldest, last)...)
		if len(places) > 8*q.Size() { // a page takes no more memory, however many records there are
			slices.SortFunc(places, place.compare)
			places = places[:q.Size()+1]
		}
	}
	slices.SortFunc(places, place.compare)
	if len(places) > q.Size() {
		places = places[:q.Size()]
		last = places[len(places)-1]
		next = strconv.FormatInt(last.major, 10) + " " + last.key
	}
	for _, p := range places {
		if r, err := s.Lookup(ctx, p.key); err == nil && q.Wants(&r) {
			r.Result = nil
			page = append(page, r)
		}
	}
	return page, next, ctx.Err()
}

// places returns where the records of a shard for which q asks are, of those behind last.
func (s inspector) places(i int, q *store.Query, oldest bool, last place) (found []place) {
	sh := &s.shards[i]
	sh.mu.Lock()
	now := s.elapsed()
	for _, slot := range sh.queue {
		e := sh.entry(slot.number)
		p := place{int64(i), sh.key(e)}
		if oldest {
			p.major = int64(e.begun)
		}
		if !sh.expired(e, now) && p.compare(last) > 0 {
			if r := s.record(sh, e, now); q.Wants(&r) {
				p.key = strings.Clone(p.key)
				found = append(found, p)
			}
		}
	}
	sh.mu.Unlock()
	if q.Match != nil {
		found = slices.DeleteFunc(found, func(p place) bool { return !q.Match(p.key) })
	}
	return found
}

// Change implements [store.Inspector]. The error is also [store.ErrFull] if a result or a remark does not fit.
func (s inspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.Validate(expected.State); err != nil {
		return err
	}
	var result string
	if c.To == store.Done { // nothing else has one
		result = string(c.Result)
	}
	sh, hash := s.locate(key)
	for {
		woken, err := s.change(sh, hash, key, &expected, &c, result)
		if woken != nil {
			close(woken)
		}
		if err != store.ErrFull || !s.makeRoom(0, int64(len(result)+len(c.Remark))) {
			return err
		}
	}
}

// change is the atomic part of Change. The caller closes woken.
func (s inspector) change(sh *shard, hash uint32, key string, expected *store.Record, c *store.Change,
	result string) (woken chan struct{}, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.elapsed()
	e := sh.standing(hash, key, now)
	if e == nil {
		return nil, store.ErrNoRecord
	}
	if r := s.record(sh, e, now); r.ID != expected.ID || r.Attempt != expected.Attempt || r.State != expected.State {
		return nil, store.ErrMovedOn
	}
	if c.To == 0 {
		s.remove(sh, e) // which wakes
		return nil, nil
	}
	t := sh.texts(e)
	remark := cmp.Or(c.Remark, t.remark)
	if c.To == store.Free {
		result = t.result
	}
	if !s.reserve(0, int64(len(remark)-len(t.remark)+len(result)-len(t.result))) {
		return nil, store.ErrFull
	}
	until, lease := later(now, c.Retention), time.Duration(0)
	if e.done = c.To == store.Done; !e.done {
		e.owner, e.free, e.uncertain = store.Owner{}, true, true // and it keeps its operation
		until, lease = later(now, sh.queue[e.place].at-e.lease), now
	}
	t.remark, t.result = remark, result
	sh.write(e, &t)
	e.lease = lease
	sh.move(e, until)
	return sh.unwatch(e), nil
}
