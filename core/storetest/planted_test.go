package storetest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/store"
)

// plantedStore is what one process has of a store that the model of histories describes, behind a mutex and at the end of a link. It keeps
// the contract, unless a fault is planted in it.
type plantedStore struct {
	*plantedRecords
	process sync.Mutex // of inProcess
}

// plantedRecords are what processes share.
type plantedRecords struct {
	mu       sync.Mutex
	clock    *Clock
	ticks    bool // the clock is the machine's
	begun    time.Time
	now      time.Duration // of the call
	records  map[string]*plantedRecord
	room     int // 0: no bound
	watchers map[string][]chan struct{}
	broken   atomic.Int32   // so many calls will fail
	late     sync.WaitGroup // calls on the way
	plant
}

// plant is what a fault changes. The zero plant changes nothing.
type plant struct {
	rename    func(key string) string
	before    func(v *visit)                           // may change the call, and the record that it meets with
	after     func(v *visit)                           // may change the answer, and the record that is left
	twoSteps  bool                                     // others come in between look and change
	inProcess bool                                     // two steps, and a lock in the process around them
	anyArgs   bool                                     // Acquire and Renew look at no argument, and
	anyCtx    bool                                     // nothing looks at the context
	wake      func(watchers []chan struct{})           // in place of closing them
	watch     func(r *plantedRecord, c chan struct{})  // may change a watch that begins
	stop      func(s *plantedRecords, c chan struct{}) // may do more than a watcher that gives up
	noStop    bool
	recall    func(r *plantedRecord, raw *uint64) bool
	declare   func(*store.Capabilities)
	full      func(s *plantedRecords) error // makes room, or says that there is none
	taken     func(s *plantedRecords) int   // how much room is taken
	link      func(again func() error) error
	restart   func(r *plantedRecord)
	tell      func(r *store.Record) // may change what an Inspector tells
	list      func(q *store.Query)
	anyCursor bool // List begins anew if it does not know the cursor
}

// visit is one call.
type visit struct {
	s         *plantedRecords
	method    string
	key       string
	claim     store.Claim // Owner is that of any call
	lease     time.Duration
	retention time.Duration
	known     time.Duration // of Outlive, which is a Complete
	result    []byte        // or the steps
	goesOn    bool
	expected  store.Record
	change    store.Change

	was, r *plantedRecord // the record before the call, and now; nil if there is none
	grant  store.Grant
	err    error
}

var (
	_ store.Store = (*plantedStore)(nil)

	errLink = errors.New("the link is broken")
)

func newPlantedStore(p plant, room int) *plantedStore {
	clock := NewClock()
	return &plantedStore{plantedRecords: &plantedRecords{
		clock: clock, begun: clock.Now(), room: room, plant: p,
		records: map[string]*plantedRecord{}, watchers: map[string][]chan struct{}{},
	}}
}

// peer returns another process's handle on the records.
func (s *plantedStore) peer() store.Store { return &plantedStore{plantedRecords: s.plantedRecords} }

// disturb breaks the link for some calls.
func (s *plantedRecords) disturb() {
	s.mu.Lock()
	for _, r := range s.records {
		if s.restart != nil {
			s.restart(r)
		}
	}
	s.mu.Unlock()
	s.broken.Store(clients)
}

// call makes a call across the link. One that fails is lost on the way there, or its answer on the way back, or it
// arrives later.
func (s *plantedStore) call(ctx context.Context, v visit) (store.Grant, error) {
	v.s = s.plantedRecords
	if s.broken.Add(-1) < 0 {
		return s.act(ctx, v)
	}
	switch rand.IntN(3) {
	case 0:
	case 1:
		s.late.Go(func() {
			time.Sleep(rand.N(time.Millisecond))
			_, _ = s.act(context.WithoutCancel(ctx), v)
		})
	default:
		_, _ = s.act(ctx, v)
	}
	if s.link == nil {
		return store.Grant{}, errLink
	}
	var g store.Grant
	err := s.link(func() (err error) { g, err = s.act(ctx, v); return err })
	return g, err
}

func (s *plantedStore) act(ctx context.Context, v visit) (store.Grant, error) {
	if err := ctx.Err(); err != nil && !s.anyCtx {
		return store.Grant{}, err
	}
	if !s.anyArgs {
		if err := v.claim.Validate(); v.method == "Acquire" && err != nil {
			return store.Grant{}, err
		}
		if v.method == "Renew" && v.lease <= 0 {
			return store.Grant{}, errors.New("a lease must be longer than zero")
		}
		if v.method == "Change" {
			if err := v.change.Validate(v.expected.State); err != nil {
				return store.Grant{}, err
			}
		}
	}
	if s.inProcess {
		s.process.Lock()
		defer s.process.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rename != nil {
		v.key = s.rename(v.key)
	}
	copied := func(r *plantedRecord) *plantedRecord {
		if r == nil {
			return nil
		}
		c := *r
		return &c
	}
	v.r = s.at(v.key)
	if s.twoSteps || s.inProcess {
		seen := copied(v.r)
		s.mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		s.mu.Lock()
		delete(s.records, v.key)
		if seen != nil {
			s.records[v.key] = seen
		}
		v.r = s.at(v.key)
	}
	v.was = copied(v.r)
	if s.before != nil {
		s.before(&v)
	}
	if v.method == "Acquire" && v.r == nil {
		v.err = s.makeRoom()
	}
	if v.err == nil {
		v.decide()
	}
	v.r = s.records[v.key]
	if s.after != nil {
		s.after(&v)
	}
	if v.was != nil && !v.was.done && (v.r == nil || v.r.done || v.r.owner != v.was.owner || v.r.free != v.was.free) {
		s.wakeAll(v.key)
	}
	return v.grant, v.err
}

func (s *plantedRecords) wakeAll(key string) {
	if s.wake != nil {
		s.wake(s.watchers[key])
		return
	}
	for _, c := range s.watchers[key] {
		close(c)
	}
	delete(s.watchers, key)
}

// standing returns how many records there are.
func (s *plantedRecords) standing() (n int) {
	for _, r := range s.records {
		if s.now < r.end {
			n++
		}
	}
	return n
}

func (s *plantedRecords) makeRoom() error {
	count := (*plantedRecords).standing
	if s.taken != nil {
		count = s.taken
	}
	switch {
	case s.room == 0 || count(s) < s.room:
		return nil
	case s.full != nil:
		return s.full(s)
	}
	return store.ErrFull
}

func (s *plantedStore) Capabilities() store.Capabilities {
	can := store.Capabilities{Inspect: plantedInspector{s}, Checkpoint: s.checkpoint, Fail: s.fail, Outlive: s.outlive, Watch: s.watchKey,
		Recall: s.recallKey, RecallFor: s, Capacity: s.room, Local: true}
	if s.declare != nil {
		s.declare(&can)
	}
	return can
}

func (s *plantedStore) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	return s.call(ctx, visit{method: "Acquire", key: key, claim: c})
}

func (s *plantedStore) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	_, err := s.call(ctx, visit{method: "Renew", key: key, claim: store.Claim{Owner: owner}, lease: lease})
	return err
}

func (s *plantedStore) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	_, err := s.call(ctx, visit{method: "Complete", key: key, claim: store.Claim{Owner: owner}, result: result, retention: retention})
	return err
}

func (s *plantedStore) Release(ctx context.Context, key string, owner store.Owner) error {
	_, err := s.call(ctx, visit{method: "Release", key: key, claim: store.Claim{Owner: owner}})
	return err
}

func (s *plantedStore) Abandon(ctx context.Context, key string, owner store.Owner) error {
	_, err := s.call(ctx, visit{method: "Abandon", key: key, claim: store.Claim{Owner: owner}})
	return err
}

func (s *plantedStore) checkpoint(ctx context.Context, key string, owner store.Owner, steps []byte) error {
	_, err := s.call(ctx, visit{method: "Checkpoint", key: key, claim: store.Claim{Owner: owner}, result: steps})
	return err
}

func (s *plantedStore) fail(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
	_, err := s.call(ctx, visit{method: "Fail", key: key, claim: store.Claim{Owner: owner}, goesOn: goesOn})
	return err
}

func (s *plantedStore) outlive(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
	_, err := s.call(ctx, visit{method: "Complete", key: key, claim: store.Claim{Owner: owner},
		result: result, retention: retention, known: known})
	return err
}

func (s *plantedStore) recallKey(key []byte) (store.Grant, uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.at(string(key))
	if r == nil {
		return store.Grant{}, 0, false
	}
	g, raw, ok := r.grant(s.now), r.claim.Raw, r.done
	if s.recall != nil {
		ok = s.recall(r, &raw)
	}
	return g, raw, ok
}

func (s *plantedStore) watchKey(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if err := ctx.Err(); err != nil && !s.anyCtx {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.at(key)
	c := make(chan struct{}, 1)
	switch {
	case s.noStop:
		return c, nil, nil
	case s.watch != nil:
		s.watch(r, c)
	case r == nil || r.done:
		close(c)
	}
	if r != nil && !r.done {
		s.watchers[key] = append(s.watchers[key], c)
	}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stop != nil {
			s.stop(s.plantedRecords, c)
		}
		s.watchers[key] = slices.DeleteFunc(s.watchers[key], func(w chan struct{}) bool { return w == c })
	}, nil
}

// plantedRecord is what a history's model knows of a record, with the times that it does not know.
type plantedRecord struct {
	keyState
	claim      store.Claim
	lease, end time.Duration // from when on it can be taken over, and is forgotten
	known      time.Duration // for so much longer than its result
	begun      time.Time
}

// plantedInspector is the store's Inspector.
type plantedInspector struct{ *plantedStore }

func (s plantedInspector) Lookup(ctx context.Context, key string) (store.Record, error) {
	if err := ctx.Err(); err != nil && !s.anyCtx {
		return store.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.at(key)
	if r == nil {
		return store.Record{}, store.ErrNoRecord
	}
	return s.told(key, r), nil
}

// told is what the store tells of a record.
func (s plantedInspector) told(key string, r *plantedRecord) store.Record {
	g := r.grant(s.now)
	told := store.Record{Key: key, State: g.State, Expired: g.Expired, Attempt: g.Attempt, Fingerprint: g.Fingerprint, About: r.claim.About,
		Begun: r.begun, Remaining: g.Remaining, Size: len(g.Result), Result: g.Result}
	if told.ID = r.id; r.isFree() {
		told.State = store.Free
	}
	if s.tell != nil {
		s.tell(&told)
	}
	return told
}

// List goes by key. The cursor is the last one.
func (s plantedInspector) List(ctx context.Context, q store.Query, cursor string) (page []store.Record, next string, err error) {
	if err := ctx.Err(); err != nil && !s.anyCtx {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list != nil {
		s.list(&q)
	}
	if cursor != "" && cursor[0] != '=' {
		if !s.anyCursor {
			return nil, "", store.ErrCursor
		}
		cursor = ""
	}
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		r := s.at(key)
		if r == nil || cursor != "" && key <= cursor[1:] {
			continue
		}
		told := s.told(key, r)
		told.Result = nil
		if !q.Wants(&told) || q.Match != nil && !q.Match(key) {
			continue
		}
		if len(page) == q.Size() {
			return page, "=" + page[len(page)-1].Key, nil
		}
		page = append(page, told)
	}
	return page, "", nil
}

func (s plantedInspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	_, err := s.call(ctx, visit{method: "Change", key: key, expected: expected, change: c, result: c.Result, retention: c.Retention})
	return err
}

// at returns the record under key, if it stands now.
func (s *plantedRecords) at(key string) *plantedRecord {
	if s.ticks {
		s.clock.Advance(time.Since(s.clock.Now()))
	}
	s.now = s.clock.Now().Sub(s.begun)
	r := s.records[key]
	if r == nil || r.end <= s.now {
		return nil
	}
	return r
}

// grant is the answer to a claim that meets with r.
func (r *plantedRecord) grant(now time.Duration) store.Grant {
	g := store.Grant{State: store.Abandoned, Attempt: r.attempt, ID: r.id, Fingerprint: r.fingerprint, Remark: r.claim.Remark,
		Result: []byte(r.result), Remaining: r.end - now}
	switch {
	case r.done && now >= r.end-r.known:
		g.State, g.Expired, g.Result = store.Done, true, nil
	case r.done:
		g.State, g.Remaining = store.Done, g.Remaining-r.known
	case now < r.lease:
		g.State, g.Remaining = store.Running, r.lease-now
	}
	return g
}

// decide makes a call as the model of histories has it.
func (v *visit) decide() {
	s, now := v.s, v.s.now
	c := call{method: v.method, claim: v.claim, owner: v.claim.Owner, lease: v.lease, retention: v.retention, result: string(v.result),
		goesOn: v.goesOn, expected: v.expected, to: v.change.To}
	var was keyState
	r := v.r
	if r == nil {
		r = &plantedRecord{}
	} else if was = r.keyState; now < r.lease {
		was.lease = leaseStands
	} else {
		was.lease = leasePassed
	}
	was.fleeting = false
	next := c.after(was)
	switch {
	case v.method == "Acquire" && next.attempt == was.attempt:
		v.grant = r.grant(now)
		return
	case v.method == "Acquire":
		v.grant = store.Grant{State: store.Acquired, Attempt: next.attempt, Free: next.free && !next.uncertain, ID: next.id,
			Secret: v.claim.Secret, Steps: []byte(next.steps)}
		if next.id == was.id && r.claim.Secret != "" {
			v.grant.Secret = r.claim.Secret
		}
		r.claim, r.lease = v.claim, now+v.claim.Lease
		r.claim.Secret = v.grant.Secret
		r.end = r.lease + v.claim.Retention
		if next.id != was.id {
			r.begun = v.s.clock.Now()
		}
	case v.method == "Change" && v.r == nil:
		v.err = store.ErrNoRecord
		return
	case !c.mayAct(was) && v.method == "Change":
		v.err = store.ErrMovedOn
		return
	case !c.mayAct(was):
		v.err = store.ErrLost
		return
	case v.method == "Renew":
		r.lease = now + v.lease
		r.end = r.lease + r.claim.Retention
	case v.method == "Checkpoint":
	case next.done:
		r.end, r.known = now+v.retention+v.known, v.known
	default:
		r.lease, r.end = now, now+r.claim.Retention
	}
	if v.method == "Change" && v.change.Remark != "" {
		r.claim.Remark = v.change.Remark
	}
	if r.keyState = next; next.attempt == 0 {
		delete(s.records, v.key)
	} else {
		s.records[v.key] = r
	}
}

// faults are ways in which a store can break the contract, each with the cases that must notice. Each case has one.
var faults = []struct {
	name  string
	cases string // with ; between them
	plant plant
}{
	{"takes over what is running", "a free key is acquired, and its claim keeps everybody out; a renewed lease counts from the renewal",
		plant{before: func(v *visit) {
			if v.method == "Acquire" && v.claim.Takeover && v.r != nil && !v.r.done {
				v.r.lease = v.s.now
			}
		}}},
	{"looks, then acts", "one of many is acquired; one of many takes over; histories are linearizable; one of two operators changes it",
		plant{twoSteps: true}},
	{"locks in the process only", "one of many is acquired", plant{inProcess: true}},

	{"folds keys' case", "keys are exact", plant{rename: strings.ToLower}},
	{"trims keys", "keys are exact", plant{rename: func(key string) string { return strings.TrimRight(key, " ") }}},
	{"ends keys at NUL", "keys are exact", plant{rename: func(key string) string { key, _, _ = strings.Cut(key, "\x00"); return key }}},
	{"normalises keys", "keys are exact", plant{rename: func(key string) string { return strings.ReplaceAll(key, "e\u0301", "\u00e9") }}},
	{"knows no empty key", "keys are exact", plant{rename: func(key string) string { return max(key, " ") }}},
	{"reads hash tags", "keys are exact", plant{rename: func(key string) string {
		_, after, _ := strings.Cut(key, "{")
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
		return key
	}}},
	{"cuts keys at 255", "long keys count to the last byte", plant{rename: func(key string) string { return key[:min(len(key), 255)] }}},

	{"keeps the latest fingerprint", "the fingerprint comes back", plant{before: func(v *visit) {
		if v.method == "Acquire" && v.r != nil {
			v.r.fingerprint = v.claim.Fingerprint
		}
	}}},
	{"takes any claim", "a bad claim changes nothing; a change that makes no sense changes nothing", plant{anyArgs: true}},
	{"acts whatever the context says", "an ended context changes nothing", plant{anyCtx: true}},

	{"anybody may do anything", `only its owner changes a record; a stale owner changes nothing after a release;
		a stale owner changes nothing after a takeover, nor after giving up what it took over`, plant{before: func(v *visit) {
		if v.method != "Acquire" && v.r != nil {
			v.claim.Owner = v.r.owner
		}
	}}},
	{"folds owners' case", "only its owner changes a record", plant{before: func(v *visit) {
		if v.r != nil && bytes.EqualFold(v.claim.Owner[:], v.r.owner[:]) {
			v.claim.Owner = v.r.owner
		}
	}}},
	{"succeeds without a record", "only its owner changes a record", plant{after: func(v *visit) {
		if v.was == nil && errors.Is(v.err, store.ErrLost) {
			v.err = nil
		}
	}}},
	{"finished records can be changed", "a finished record is nobody's", plant{before: func(v *visit) {
		if v.method != "Acquire" && v.r != nil {
			v.r.done = false
		}
	}}},

	{"keeps the lock as long as the result", "the attempt counts takeovers; a lease ends when it is over",
		plant{before: func(v *visit) { v.claim.Lease += v.claim.Retention }}},
	{"takes over unasked", "a lapsed claim that nobody took is still its owner's",
		plant{before: func(v *visit) { v.claim.Takeover = true }}},
	{"takes over with other parameters", "takeover is for the same parameters only", plant{before: func(v *visit) {
		if v.r != nil && v.claim.Takeover {
			v.claim.Fingerprint = v.r.fingerprint
		}
	}}},
	{"takes over any attempt", "takeover is for the named attempt only", plant{before: func(v *visit) { v.claim.Attempt = 0 }}},
	{"keeps the first lease and retention", "a takeover brings its own lease and retention", plant{before: func(v *visit) {
		if v.r != nil {
			v.claim.Lease, v.claim.Retention = v.r.claim.Lease, v.r.claim.Retention
		}
	}}},
	{"lapsed claims are lost", `a lapsed claim that nobody took is still its owner's;
		a watcher is woken by every end of a run`, plant{before: func(v *visit) {
		if v.method != "Acquire" && v.r != nil && v.s.now >= v.r.lease {
			v.claim.Owner = store.Owner{}
		}
	}}},
	{"forgets what has no owner", `what a run that gives up leaves can be taken over;
		what has no owner is remembered for its retention; a record that was free is so after a release`, plant{after: func(v *visit) {
		if v.r != nil && v.r.owner.IsZero() {
			delete(v.s.records, v.key)
		}
	}}},
	{"takes what is free for abandoned, and the reverse",
		`a record that was free is so after a release; what a run that gives up leaves can be taken over;
		completing without retention keeps the attempt of a takeover, and nothing else`, plant{after: func(v *visit) {
			if v.r != nil && v.r.owner.IsZero() && v.err == nil && v.method != "Acquire" {
				v.r.free = !v.r.free
			}
		}}},
	{"begins anew what has failed", "the next run of an operation gets its steps", plant{after: func(v *visit) {
		if v.method == "Acquire" && v.was != nil && v.grant.Free && v.grant.ID == v.was.id {
			v.r.begun = v.r.begun.Add(1)
		}
	}}},
	{"a release abandons what was free", "a record that was free is so after a release", plant{after: func(v *visit) {
		if v.r != nil && v.method == "Release" {
			v.r.free = false
		}
	}}},
	{"does not tell what was free", "completing without retention keeps the attempt of a takeover, and nothing else",
		plant{after: func(v *visit) { v.grant.Free = false }}},
	{"remembers what is abandoned until its lease would have passed", "an abandoned run is forgotten when its retention is over",
		plant{after: func(v *visit) {
			if v.method == "Abandon" && v.err == nil {
				v.r.end = v.was.end
			}
		}}},
	{"never forgets", `an abandoned record is forgotten after its retention; what has no owner is remembered for its retention;
		an abandoned run is forgotten when its retention is over; a result is forgotten after its retention; a lease ends when it is over;
		what has passed is not recalled`, plant{after: func(v *visit) {
		if v.r != nil && v.r.end < 1000*long {
			v.r.end += 1000 * long
		}
	}}},
	{"renews nothing", "a renewed lease counts from the renewal; a renewed lease keeps its retention", plant{after: func(v *visit) {
		if v.method == "Renew" && v.err == nil {
			*v.r = *v.was
		}
	}}},
	{"renews to later only", "a renewed lease counts from the renewal", plant{before: func(v *visit) {
		if v.r != nil {
			v.lease = max(v.lease, v.r.lease-v.s.now)
		}
	}}},
	{"counts in milliseconds", "spans of any length", plant{before: func(v *visit) { v.claim.Lease -= v.claim.Lease % time.Millisecond },
		after: func(v *visit) {
			if v.method == "Acquire" && v.claim.Lease == 0 {
				v.err = errors.New("invalid expire time")
			}
		}}},
	{"tells what remains in milliseconds", "what remains is true", plant{after: func(v *visit) { v.grant.Remaining /= time.Millisecond }}},
	{"looking prolongs", "looking prolongs nothing", plant{after: func(v *visit) {
		if v.method == "Acquire" && v.grant.State != store.Acquired {
			v.r.lease += time.Second
			v.r.end += time.Second
		}
	}}},

	{"forgets results with the claim", "a result outlives the lease", plant{after: func(v *visit) {
		if v.method == "Complete" && v.err == nil && v.r != nil && v.r.done {
			v.r.end = v.was.end
		}
	}}},
	{"no retention means for ever", "completing without retention keeps the attempt of a takeover, and nothing else",
		plant{before: func(v *visit) {
			if v.retention <= 0 {
				v.retention = 1000 * long
			}
		}}},
	{"ends results at NUL", "results come back as they were",
		plant{before: func(v *visit) { v.result, _, _ = bytes.Cut(v.result, []byte{0}) }}},
	{"keeps results as text", "results come back as they were",
		plant{before: func(v *visit) { v.result = bytes.ToValidUTF8(v.result, nil) }}},
	{"cuts results at 64 KiB", "results come back as they were",
		plant{before: func(v *visit) { v.result = v.result[:min(len(v.result), 1<<16)] }}},
	{"keeps the caller's bytes", "bytes are copied", keepsBytes(func(result []byte) []byte { return result })},
	{"hands out its own bytes", "bytes are copied", keepsBytes(bytes.Clone)},

	{"wakes nobody", "a watcher is woken by every end of a run; a watcher is woken by a takeover; a run that fails wakes who waits; all " +
		"watchers are woken; no wake-up is lost; an operator's change wakes who waits",
		plant{wake: func([]chan struct{}) {}}},
	{"wakes one watcher only", "all watchers are woken", plant{wake: func(watchers []chan struct{}) {
		for _, c := range watchers[:min(1, len(watchers))] {
			close(c)
		}
	}}},
	{"sends where it should close", "a watcher is woken by every end of a run", plant{wake: func(watchers []chan struct{}) {
		for _, c := range watchers {
			c <- struct{}{}
		}
	}}},
	{"watches nothing for ever", "watching nothing returns at once", plant{watch: func(*plantedRecord, chan struct{}) {}}},
	{"wakes all the time", "a watch on a quiet run stays quiet", plant{watch: func(_ *plantedRecord, c chan struct{}) { c <- struct{}{} }}},
	{"needs a goroutine for each watcher, for ever", "a watcher may give up",
		plant{watch: func(_ *plantedRecord, c chan struct{}) { go func() { <-c }() }}},
	{"one watcher gives up for all", "a watcher may give up", plant{stop: func(s *plantedRecords, _ chan struct{}) { clear(s.watchers) }}},
	{"panics at a second stop", "a watcher may give up", plant{stop: func(_ *plantedRecords, c chan struct{}) { close(c) }}},
	{"hands out no stop", "a watcher may give up", plant{noStop: true}},

	{"recalls what is not finished", "what is finished is recalled; what was taken over is recalled as its last run's",
		plant{recall: func(*plantedRecord, *uint64) bool { return true }}},
	{"recalls the first claim", "what was taken over is recalled as its last run's",
		plant{recall: func(r *plantedRecord, raw *uint64) bool {
			*raw = 7
			return r.done
		}}},
	{"recalls for nobody", "it is what it declares", plant{declare: func(can *store.Capabilities) { can.RecallFor = nil }}},
	{"calls its own what others reach", "it is what it declares", plant{declare: func(can *store.Capabilities) { can.InProcess = true }}},
	{"declares more room than it has", "a full store refuses", plant{declare: func(can *store.Capabilities) { can.Capacity++ }}},

	{"drops records when full", "a full store refuses; a full store keeps what is abandoned", plant{full: func(s *plantedRecords) error {
		for key := range s.records {
			delete(s.records, key)
			return nil
		}
		return store.ErrFull
	}}},
	{"is full without ErrFull", "a full store refuses", plant{full: func(*plantedRecords) error { return errors.New("no room") }}},
	{"the dead take up room", "a full store reclaims what has passed among what stands",
		plant{taken: func(s *plantedRecords) int { return len(s.records) }}},
	{"never gives room back", "a full store has room again after a release", func() plant {
		begun := map[*plantedRecords]int{}
		return plant{taken: func(s *plantedRecords) int { begun[s]++; return begun[s] - 1 }}
	}()},
	{"takeover needs room", "a full store can be taken over in", plant{after: func(v *visit) {
		if v.s.room > 0 && v.grant.Attempt > 1 && v.grant.State == store.Acquired && v.s.standing() >= v.s.room {
			v.err = store.ErrFull
		}
	}}},

	{"tells no policy", "a record tells of its operation", plant{tell: func(r *store.Record) { r.Policy = "" }}},
	{"goes on for ever", "what has ended begins as a new operation", plant{after: func(v *visit) {
		if v.method == "Complete" && v.err == nil && v.r != nil {
			v.r.id = v.was.id
		}
	}}},
	{"cuts notes at 100 bytes", "notes are text of any kind",
		plant{before: func(v *visit) { v.claim.Remark = v.claim.Remark[:min(len(v.claim.Remark), 100)] }}},
	{"tells duplicates of no remark", "notes are text of any kind", plant{after: func(v *visit) { v.grant.Remark = "" }}},
	{"lists from 1 on", "a list has each record", plant{list: func(q *store.Query) { q.Prefix = max(q.Prefix, "1") }}},
	{"begins anew", "what is no cursor is an error of its own", plant{anyCursor: true}},
	{"lists no renewed run", "a list has what stands while others come and go", plant{tell: func(r *store.Record) {
		if r.Remaining > long+long/2 {
			r.State = store.Abandoned
		}
	}}},
	{"an operator's release only abandons", "an operator's release frees for anybody", plant{after: func(v *visit) {
		if v.change.To == store.Free && v.r != nil {
			v.r.free = false
		}
	}}},
	{"loses an operator's answer", "an operator's answer is what a duplicate gets", plant{after: func(v *visit) {
		if v.change.To == store.Done && v.r != nil {
			v.r.result = ""
		}
	}}},
	{"changes what has moved on", "a change that comes too late does nothing", plant{before: func(v *visit) {
		if v.method == "Change" && v.r != nil {
			v.expected.ID, v.expected.Attempt = v.r.id, v.r.attempt
		}
	}}},

	{"an operator's release forgets the steps", "the next run of an operation gets its steps", plant{after: func(v *visit) {
		if v.method == "Change" && v.r != nil {
			v.r.steps = ""
		}
	}}},
	{"loses steps", "the next run of an operation gets its steps", plant{after: func(v *visit) { v.grant.Steps = nil }}},
	{"adds steps to those before", "the next run of an operation gets its steps", plant{before: func(v *visit) {
		if v.method == "Checkpoint" && v.r != nil {
			v.result = append(bytes.Clone(v.result), v.r.steps...)
		}
	}}},
	{"carries out late checkpoints", "a checkpoint that comes late changes nothing", plant{before: func(v *visit) {
		if v.method == "Checkpoint" && v.r != nil && v.r.owner == v.claim.Owner {
			v.r.steps = ""
		}
	}}},
	{"takes the longer checkpoint for the newer one", "a checkpoint that comes late changes nothing", plant{after: func(v *visit) {
		if v.method == "Checkpoint" && v.err == nil && len(v.result) > len(v.was.steps) {
			v.r.steps = string(v.result)
		}
	}}},
	{"hands old steps to a new operation", "steps end with their operation", plant{after: func(v *visit) {
		if v.method == "Acquire" && v.was != nil && v.grant.State == store.Acquired {
			v.grant.Steps = []byte(v.was.steps)
		}
	}}},
	{"keeps no more than a release", "a run that fails keeps its operation for any claim", plant{before: func(v *visit) {
		if v.method == "Fail" {
			v.method, v.goesOn = "Release", false
		}
	}}},
	{"a claim that is given back ends the operation", "a run that fails keeps its operation for any claim", plant{before: func(v *visit) {
		if v.method == "Release" && v.r != nil && !v.r.uncertain {
			v.r.kept = false
		}
	}}},
	{"forgets who took over", "a takeover that fails is still one", plant{after: func(v *visit) {
		if v.method == "Fail" && v.r != nil {
			v.r.uncertain = false
		}
	}}},
	{"forgets it at the second failure", "a takeover that fails is still one", plant{after: func(v *visit) {
		if v.method == "Fail" && v.r != nil && v.was.free {
			v.r.uncertain = false
		}
	}}},
	{"loses steps when an operator releases", "the next run of an operation gets its steps", plant{after: func(v *visit) {
		if v.method == "Change" && v.r != nil {
			v.r.steps = ""
		}
	}}},
	{"tells steps as a result", "the next run of an operation gets its steps", plant{tell: func(r *store.Record) { r.Size++ }}},
	{"names the latest secret", "an operation keeps its first secret", plant{after: func(v *visit) { v.grant.Secret = v.claim.Secret }}},
	{"declares half of it", "it is what it declares", plant{declare: func(can *store.Capabilities) { can.Fail = nil }}},

	{"replays what has expired", "a key outlives its result", plant{after: func(v *visit) {
		if v.grant.Expired {
			v.grant.Result = []byte(v.r.result)
		}
	}}},
	{"tells what has expired", "a key outlives its result", plant{tell: func(r *store.Record) { r.Expired = false }}},
	{"recalls what has expired", "a key outlives its result", plant{recall: func(r *plantedRecord, _ *uint64) bool {
		r.known = 0
		return r.done
	}}},
	{"forgets a key with its result", "a key outlives its result; a key that outlives its result is known for as long as it was said",
		plant{before: func(v *visit) { v.known = 0 }}},
	{"keeps a result for as long as its key",
		"a key outlives its result; a key that outlives its result is known for as long as it was said",
		plant{before: func(v *visit) { v.retention, v.known = v.retention+v.known, 0 }}},
	{"counts from the look on", "a key that outlives its result is known for as long as it was said", plant{after: func(v *visit) {
		if v.grant.Expired {
			v.grant.Remaining = v.r.known
		}
	}}},
	{"takes the next record for one that outlives its result", "a key that outlives its result is known for as long as it was said",
		plant{after: func(v *visit) {
			if v.method == "Complete" && v.known == 0 && v.r != nil {
				v.r.known = v.retention
			}
		}}},

	{"tries again", "histories are linearizable under faults", plant{link: func(again func() error) error { return again() }}},
	{"acknowledges what did not arrive", "histories are linearizable under faults", plant{link: func(func() error) error { return nil }}},
	{"loses completions at a restart", "histories are linearizable under faults",
		plant{restart: func(r *plantedRecord) { r.done, r.result = false, "" }}},
}

// keepsBytes is a store that keeps results as keep says, and hands out what it keeps.
func keepsBytes(keep func(result []byte) []byte) plant {
	kept := map[*plantedRecords]map[string][]byte{}
	return plant{after: func(v *visit) {
		switch {
		case v.method == "Complete" && v.err == nil:
			if kept[v.s] == nil {
				kept[v.s] = map[string][]byte{}
			}
			kept[v.s][v.key] = keep(v.result)
		case v.method == "Acquire" && v.grant.State == store.Done:
			v.grant.Result = kept[v.s][v.key]
		}
	}}
}
