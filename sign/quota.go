package sign

import "sync"

// quota bounds how many nonces of one verifier are remembered at a time, of each owner and of all owners.
type quota struct {
	each, all int   // each zero: see isUsed
	span      int64 // of a slot, in seconds

	mu     sync.Mutex
	now    int64 // the slot of the latest time; it goes back only if the clock goes back by far
	owners map[string]*tally
	total  tally
}

// tally is a number of nonces, by the slot in which each is forgotten. It counts until the slot has passed.
type tally struct {
	sum   int
	open  int   // how many of them are being looked up, and may turn out to be replays
	first int64 // the slots before it have passed
	slots [quotaSlots]int
}

// quotaSlots is the number of slots of time. A nonce counts until the end of its slot, so up to a fourteenth of the longest
// time longer than it is remembered.
const quotaSlots = 16

// newQuota returns a quota for nonces that are remembered for at most longest seconds.
func newQuota(each, all int, longest int64) *quota {
	return &quota{each: each, all: all, span: longest/(quotaSlots-2) + 1, owners: make(map[string]*tally)}
}

// take counts a nonce that is remembered until then, and returns its slot for finish. Times are in seconds since 1970. The error
// is CodeRateLimited if the owner's quota is used up, and CodeStoreUnavailable if that of all owners is.
func (q *quota) take(owner string, now, then int64) (slot int64, err *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	own, err := q.admit(owner, now)
	if err != nil {
		return 0, err
	}
	slot = min(max(then/q.span, q.now), q.now+quotaSlots-1) // a clock may be put back or forward
	own.open++
	own.add(slot, 1)
	q.total.add(slot, 1)
	return slot, nil
}

// check returns the error that take would return.
func (q *quota) check(owner string, now int64) *Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, err := q.admit(owner, now)
	return err
}

// admit returns the owner's tally if there is room for one more. q.mu is held.
func (q *quota) admit(owner string, now int64) (*tally, *Error) {
	if now/q.span < q.now-quotaSlots { // the clock was wrong before: its slots would not pass for as long as it was ahead
		q.now, q.total, q.owners = now/q.span, tally{first: now / q.span}, make(map[string]*tally)
	}
	q.now = max(q.now, now/q.span)
	own := q.tally(owner)
	own.forget(q.now)
	q.total.forget(q.now)
	switch {
	case q.isUsed(own.sum):
		err := Errorf(CodeRateLimited, "%d nonces of the owner %q are remembered", own.sum, owner)
		if err.retryAfter = 1; q.isUsed(own.sum - own.open) {
			err.retryAfter = own.end()*q.span - max(now, q.now*q.span)
		}
		return nil, err
	case q.total.sum >= q.all:
		return nil, Errorf(CodeStoreUnavailable, "the nonce was not looked up: %w", ErrNoncesFull)
	}
	return own, nil
}

// isUsed reports whether an owner with n nonces has used up its quota. Without a number, that is a third of what is free: one owner
// gets a quarter of all, and each further one a quarter of what those before have left.
func (q *quota) isUsed(n int) bool {
	if q.each > 0 {
		return n >= q.each
	}
	return n > 0 && 3*n >= q.all-q.total.sum
}

// finish ends a take. A nonce that was not remembered counts no longer.
func (q *quota) finish(owner string, slot int64, remembered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	own, ok := q.owners[owner]
	if ok {
		own.open = max(own.open-1, 0)
	}
	if remembered {
		return
	}
	q.total.add(slot, -1)
	if ok {
		own.add(slot, -1)
	}
}

// maxLooked is how many owners are looked at for each new one. It is more than one, so that owners without nonces are
// forgotten faster than new ones come.
const maxLooked = 4

func (q *quota) tally(owner string) *tally {
	if own, ok := q.owners[owner]; ok {
		return own
	}
	looked := 0
	for other, t := range q.owners { // in random order
		if t.forget(q.now); t.sum == 0 && t.open == 0 {
			delete(q.owners, other)
		}
		if looked++; looked == maxLooked {
			break
		}
	}
	own := &tally{first: q.now}
	q.owners[owner] = own
	return own
}

// forget forgets the slots before now.
func (t *tally) forget(now int64) {
	if now-t.first >= quotaSlots {
		*t = tally{open: t.open, first: now}
	}
	for ; t.first < now; t.first++ {
		i := t.first % quotaSlots
		t.sum -= t.slots[i]
		t.slots[i] = 0
	}
}

// add adds n to a slot, unless the slot has passed or is too far ahead.
func (t *tally) add(slot int64, n int) {
	if t.first <= slot && slot < t.first+quotaSlots {
		t.sum += n
		t.slots[slot%quotaSlots] += n
	}
}

// end returns the first slot in which one nonce less counts.
func (t *tally) end() int64 {
	for slot := t.first; slot < t.first+quotaSlots; slot++ {
		if t.slots[slot%quotaSlots] > 0 {
			return slot + 1
		}
	}
	return t.first
}
