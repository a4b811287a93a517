package storetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core/store"
)

// plantedStore is what one process has of the model, behind a mutex and at the end of a link. It keeps the contract,
// unless a fault is planted in it.
type plantedStore struct {
	*plantedRecords
	process sync.Mutex // of inProcess
}

// plantedRecords are what processes share.
type plantedRecords struct {
	mu       sync.Mutex
	clock    *Clock
	begun    time.Time
	model    *model
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
	watch     func(r *modelRecord, c chan struct{})    // may change a watch that begins
	stop      func(s *plantedRecords, c chan struct{}) // may do more than a watcher that gives up
	noStop    bool
	recall    func(s *plantedRecords, r *modelRecord, g *store.Grant, raw *uint64) bool
	declare   func(*store.Capabilities)
	full      func(s *plantedRecords) error // makes room, or says that there is none
	taken     func(s *plantedRecords) int   // how much room is taken
	link      func(again func() error) error
	restart   func(r *modelRecord)
}

// visit is one call.
type visit struct {
	s         *plantedRecords
	method    string
	key       string
	claim     store.Claim // Owner is that of any call
	lease     time.Duration
	retention time.Duration
	result    []byte

	was, r *modelRecord // the record before the call, and now; nil if there is none
	grant  store.Grant
	err    error
}

func (v *visit) now() time.Duration { return v.s.model.now }

var (
	_ store.Store = (*plantedStore)(nil)

	errLink = errors.New("the link is broken")
)

func newPlantedStore(p plant, room int) *plantedStore {
	clock := NewClock()
	return &plantedStore{plantedRecords: &plantedRecords{
		clock: clock, begun: clock.Now(), room: room, plant: p,
		model: &model{records: map[string]*modelRecord{}}, watchers: map[string][]chan struct{}{},
	}}
}

// peer returns another process's handle on the records.
func (s *plantedStore) peer() store.Store { return &plantedStore{plantedRecords: s.plantedRecords} }

// disturb breaks the link for some calls.
func (s *plantedRecords) disturb() {
	s.mu.Lock()
	for _, r := range s.model.records {
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
	m := s.model
	find := func() *modelRecord {
		m.now = s.clock.Now().Sub(s.begun)
		return m.at(v.key)
	}
	copied := func(r *modelRecord) *modelRecord {
		if r == nil {
			return nil
		}
		c := *r
		return &c
	}
	v.r = find()
	if s.twoSteps || s.inProcess {
		seen := copied(v.r)
		s.mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		s.mu.Lock()
		delete(m.records, v.key)
		if seen != nil {
			m.records[v.key] = seen
		}
		v.r = find()
	}
	v.was = copied(v.r)
	if s.before != nil {
		s.before(&v)
	}
	owner := v.claim.Owner
	switch v.method {
	case "Acquire":
		if v.r == nil {
			v.err = s.makeRoom()
		}
		if v.err == nil {
			v.grant = m.acquire(v.key, v.claim)
		}
	case "Renew":
		v.err = m.renew(v.key, owner, v.lease)
	case "Complete":
		v.err = m.complete(v.key, owner, string(v.result), v.retention)
	case "Release":
		v.err = m.release(v.key, owner)
	default:
		v.err = m.abandon(v.key, owner)
	}
	v.r = m.records[v.key]
	if s.after != nil {
		s.after(&v)
	}
	if v.was != nil && !v.was.done && (v.r == nil || v.r.done || v.r.claim.Owner != v.was.claim.Owner) {
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
	for _, r := range s.model.records {
		if s.model.now < r.end {
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
	can := store.Capabilities{Watch: s.watchKey, Recall: s.recallKey, RecallFor: s, Capacity: s.room, Local: true}
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

func (s *plantedStore) recallKey(key []byte) (store.Grant, uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.now = s.clock.Now().Sub(s.begun)
	r := s.model.at(string(key))
	if r == nil {
		return store.Grant{}, 0, false
	}
	g := store.Grant{State: store.Done, Attempt: r.attempt, Fingerprint: r.claim.Fingerprint, Result: []byte(r.result), Remaining: r.end - s.model.now}
	raw, ok := r.claim.Raw, r.done
	if s.recall != nil {
		ok = s.recall(s.plantedRecords, r, &g, &raw)
	}
	return g, raw, ok
}

func (s *plantedStore) watchKey(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	if err := ctx.Err(); err != nil && !s.anyCtx {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.now = s.clock.Now().Sub(s.begun)
	r := s.model.at(key)
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

// model is a store in the fewest words: no bounds, and one caller at a time. Faults are planted in it.
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

// faults are ways in which a store can break the contract, each with the cases that must notice. Each case has one.
var faults = []struct {
	name  string
	cases string // with ; between them
	plant plant
}{
	{"counts attempts from 0", "a free key is acquired; the attempt counts takeovers",
		plant{after: func(v *visit) { v.grant.Attempt-- }}},
	{"takes over what is running", "a standing claim keeps everybody out; a renewed lease ends later", plant{before: func(v *visit) {
		if v.method == "Acquire" && v.claim.Takeover && v.r != nil && !v.r.done {
			v.r.lease = v.now()
		}
	}}},
	{"looks, then acts", `one of many is acquired; one of many endings counts; one of many takes over; either the late owner or the taker wins; one of many begins anew;
		histories are linearizable`, plant{twoSteps: true}},
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

	{"forgets fingerprints", "the fingerprint comes back; a release after a takeover keeps the attempt; an abandoned run can be taken over at once",
		plant{after: func(v *visit) { v.grant.Fingerprint = "" }}},
	{"keeps the latest fingerprint", "the fingerprint comes back", plant{before: func(v *visit) {
		if v.method == "Acquire" && v.r != nil {
			v.r.claim.Fingerprint = v.claim.Fingerprint
		}
	}}},
	{"takes any claim", "a bad claim changes nothing", plant{anyArgs: true}},
	{"acts whatever the context says", "an ended context changes nothing; an ended context watches nothing", plant{anyCtx: true}},

	{"anybody may do anything", `a stranger changes nothing; owners differ in any byte; a stale owner changes nothing after a release;
		a stale owner changes nothing after a takeover, nor after giving up what it took over`, plant{before: func(v *visit) {
		if v.method != "Acquire" && v.r != nil {
			v.claim.Owner = v.r.claim.Owner
		}
	}}},
	{"folds owners' case", "owners differ in any byte", plant{before: func(v *visit) {
		if v.r != nil && bytes.EqualFold(v.claim.Owner[:], v.r.claim.Owner[:]) {
			v.claim.Owner = v.r.claim.Owner
		}
	}}},
	{"succeeds without a record", "without a record there is nothing to hold", plant{after: func(v *visit) {
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
	{"takes over unasked", "an abandoned record is reported and left alone", plant{before: func(v *visit) { v.claim.Takeover = true }}},
	{"takes over with other parameters", "takeover is for the same parameters only", plant{before: func(v *visit) {
		if v.r != nil && v.claim.Takeover {
			v.claim.Fingerprint = v.r.claim.Fingerprint
		}
	}}},
	{"takes over any attempt", "takeover is for the named attempt only", plant{before: func(v *visit) { v.claim.Attempt = 0 }}},
	{"keeps the first lease and retention", "a takeover brings its own lease and retention", plant{before: func(v *visit) {
		if v.r != nil {
			v.claim.Lease, v.claim.Retention = v.r.claim.Lease, v.r.claim.Retention
		}
	}}},
	{"lapsed claims are lost", `a lapsed claim that nobody took is still its owner's; a lapsed claim can be abandoned;
		a watcher is woken by every end of a run`, plant{before: func(v *visit) {
		if v.method != "Acquire" && v.r != nil && v.now() >= v.r.lease {
			v.claim.Owner = store.Owner{}
		}
	}}},
	{"forgets what has no owner", `an abandoned run can be taken over at once; an abandoned run is remembered for its retention;
		a release after a takeover keeps the attempt; a release after a takeover is remembered for its retention;
		a record that was free is so after a release; a free record is remembered for its retention`, plant{after: func(v *visit) {
		if v.r != nil && v.r.claim.Owner.IsZero() {
			delete(v.s.model.records, v.key)
		}
	}}},
	{"takes what is free for abandoned, and the reverse", `a record that was free is so after a release; an abandoned run can be taken over at once;
		completing without retention after a takeover keeps the attempt, and nothing else`, plant{after: func(v *visit) {
		if v.r != nil && v.r.claim.Owner.IsZero() && v.err == nil && v.method != "Acquire" {
			v.r.free = !v.r.free
		}
	}}},
	{"a release abandons what was free", "a record that was free is so after a release", plant{after: func(v *visit) {
		if v.r != nil && v.method == "Release" {
			v.r.free = false
		}
	}}},
	{"does not tell what was free", "completing without retention after a takeover keeps the attempt, and nothing else",
		plant{after: func(v *visit) { v.grant.Free = false }}},
	{"remembers what is abandoned until its lease would have passed", "an abandoned run is forgotten when its retention is over", plant{after: func(v *visit) {
		if v.method == "Abandon" && v.err == nil {
			v.r.end = v.was.end
		}
	}}},
	{"never forgets", `an abandoned record is forgotten after its retention; an abandoned run is remembered for its retention;
		an abandoned run is forgotten when its retention is over; a release after a takeover is remembered for its retention;
		a free record is remembered for its retention; a result is forgotten after its retention; a lease ends when it is over;
		what has passed is not recalled`, plant{after: func(v *visit) {
		if v.r != nil && v.r.end < 1000*long {
			v.r.end += 1000 * long
		}
	}}},
	{"renews nothing", `a renewed lease ends later; a lease may be renewed to end sooner; a renewed lease keeps its retention`, plant{after: func(v *visit) {
		if v.method == "Renew" && v.err == nil {
			*v.r = *v.was
		}
	}}},
	{"renews to later only", "a lease may be renewed to end sooner", plant{before: func(v *visit) {
		if v.r != nil {
			v.lease = max(v.lease, v.r.lease-v.now())
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
	{"no retention means for ever", "completing without retention releases", plant{before: func(v *visit) {
		if v.retention <= 0 {
			v.retention = 1000 * long
		}
	}}},
	{"ends results at NUL", "results come back as they were", plant{before: func(v *visit) { v.result, _, _ = bytes.Cut(v.result, []byte{0}) }}},
	{"keeps results as text", "results come back as they were", plant{before: func(v *visit) { v.result = bytes.ToValidUTF8(v.result, nil) }}},
	{"cuts results at 64 KiB", "results come back as they were", plant{before: func(v *visit) { v.result = v.result[:min(len(v.result), 1<<16)] }}},
	{"keeps the caller's bytes", "bytes are copied", keepsBytes(func(result []byte) []byte { return result })},
	{"hands out its own bytes", "bytes are copied", keepsBytes(bytes.Clone)},
	{"one buffer for all", "many keys at once", func() plant {
		var buffer []byte
		return keepsBytes(func(result []byte) []byte {
			buffer = append(append(buffer[:0], result...), make([]byte, 100)...)[:len(result)]
			return buffer
		})
	}()},

	{"wakes nobody", "a watcher is woken by every end of a run; a watcher is woken by a takeover; all watchers are woken; no wake-up is lost",
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
	{"watches nothing for ever", "watching nothing returns at once", plant{watch: func(*modelRecord, chan struct{}) {}}},
	{"wakes all the time", "a watch on a quiet run stays quiet", plant{watch: func(_ *modelRecord, c chan struct{}) { c <- struct{}{} }}},
	{"needs a goroutine for each watcher, for ever", "a watcher may give up", plant{watch: func(_ *modelRecord, c chan struct{}) { go func() { <-c }() }}},
	{"one watcher gives up for all", "a watcher may give up", plant{stop: func(s *plantedRecords, _ chan struct{}) { clear(s.watchers) }}},
	{"panics at a second stop", "a watcher may give up", plant{stop: func(_ *plantedRecords, c chan struct{}) { close(c) }}},
	{"hands out no stop", "a watcher may give up", plant{noStop: true}},

	{"recalls what is not finished", "what is finished is recalled; what was taken over is recalled as its last run's",
		plant{recall: func(*plantedRecords, *modelRecord, *store.Grant, *uint64) bool { return true }}},
	{"recalls the first claim", "what was taken over is recalled as its last run's", plant{recall: func(_ *plantedRecords, r *modelRecord, _ *store.Grant, raw *uint64) bool {
		*raw = 7
		return r.done
	}}},
	{"recalls for nobody", "it is what it declares", plant{declare: func(can *store.Capabilities) { can.RecallFor = nil }}},
	{"calls its own what others reach", "it is what it declares", plant{declare: func(can *store.Capabilities) { can.InProcess = true }}},
	{"declares more room than it has", "a full store refuses", plant{declare: func(can *store.Capabilities) { can.Capacity++ }}},

	{"drops records when full", "a full store refuses; a full store keeps what is abandoned", plant{full: func(s *plantedRecords) error {
		for key := range s.model.records {
			delete(s.model.records, key)
			return nil
		}
		return store.ErrFull
	}}},
	{"is full without ErrFull", "a full store refuses", plant{full: func(*plantedRecords) error { return errors.New("no room") }}},
	{"the dead take up room", "a full store reclaims what has passed; a full store reclaims what has passed among what stands",
		plant{taken: func(s *plantedRecords) int { return len(s.model.records) }}},
	{"never gives room back", "a full store has room again after a release", func() plant {
		begun := map[*plantedRecords]int{}
		return plant{taken: func(s *plantedRecords) int { begun[s]++; return begun[s] - 1 }}
	}()},
	{"takeover needs room", "a full store can be taken over in", plant{after: func(v *visit) {
		if v.s.room > 0 && v.grant.Attempt > 1 && v.grant.State == store.Acquired && v.s.standing() >= v.s.room {
			v.err = store.ErrFull
		}
	}}},

	{"tries again", "histories are linearizable under faults", plant{link: func(again func() error) error { return again() }}},
	{"acknowledges what did not arrive", "histories are linearizable under faults", plant{link: func(func() error) error { return nil }}},
	{"loses completions at a restart", "histories are linearizable under faults", plant{restart: func(r *modelRecord) { r.done, r.result = false, "" }}},
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
