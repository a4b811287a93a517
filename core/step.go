package core

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/idem-go/idem/core/store"
)

// Step runs fn once for the operation of the run to which ctx belongs, and remembers its result in the operation's record. When the
// operation runs again, after a crash or a failure that may be tried again, Step returns that result without calling fn.
//
//	charge, err := core.Step(ctx, "charge", func(ctx context.Context) (Charge, error) {
//		key, err := core.RunFrom(ctx).Derive("stripe/charge")
//		…
//	})
//
// fn ends before its result is written. If the process dies in between, the step runs again, so its calls downstream need a key
// from [Run.Derive]. A step whose fn returns an error or panics is not remembered; Step returns the error unchanged.
//
// The result is stored as by [Do]: unchanged if T is []byte, otherwise as JSON. Step returns an error together with the result if
// the result would change when it is read, or can't be written because the claim is lost ([store.ErrLost]), the store fails, or it
// does not fit: all results of an operation together have at most 64 KiB, and so have the names. Then the step has run, and runs
// again in the next attempt. Each step that runs costs one round trip to the store. When the operation is done, its steps are
// forgotten.
//
// name identifies the step within the operation. A second step of a run with the same name is an error, but a failed one may be
// tried again. It has 1 to 255 bytes. A run that has lost its lease begins no more steps once it knows ([ErrLeaseLost]). Steps may
// run concurrently, and within other steps. A step that was remembered by an earlier version of the program counts: if the meaning
// of a step has changed, give it another name. A remembered result that is no T is an error.
//
// It is also an error to call Step in the function of a RunTx or DoTx, because a rollback would leave the step finished; with a
// store that can't remember steps ([store.Capabilities].Checkpoint); and, by errors.Is [codes.NoRun], with a context that belongs
// to no run. If a guard has let the request pass ([Run.Unprotected]), Step simply calls fn.
//
// docs/steps.md says what steps are good for, and when to use a workflow engine.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	var value T
	run := RunFrom(ctx)
	p, err := run.steps(name)
	switch {
	case err != nil:
		return value, err
	case p == nil:
		return fn(ctx)
	}
	stored, known, err := p.enter(name)
	if err == nil && !known && errors.Is(context.Cause(ctx), ErrLeaseLost) {
		p.leave(name)
		err = errStepLost
	}
	if err != nil {
		return value, err
	}
	if known {
		value, err := decodeValue[T]([]byte(stored))
		if err != nil {
			var none T
			return none, fmt.Errorf("idem: Step %q: its result was stored by an earlier attempt, and is no %T: %w", name, none, err)
		}
		return value, nil
	}
	finished := false
	defer func() {
		if !finished { // an error, or a panic
			p.leave(name)
		}
	}()
	if value, err = fn(ctx); err != nil {
		return value, err
	}
	result, err := encodeValue(&value)
	if err == nil {
		err = run.remember(ctx, p, name, result)
	}
	if err != nil {
		return value, fmt.Errorf("idem: Step %q has run, and its result is not remembered: %w", name, err)
	}
	finished = true
	return value, nil
}

// maxSteps is the greatest length of all results, and of all names, of an operation's steps.
const maxSteps = 64 << 10

var (
	errStepName   = errors.New("idem: Step: a name has 1 to 255 bytes")
	errStepInTx   = errors.New("idem: Step: called in a RunTx or DoTx, whose rollback would leave the step finished; call it outside")
	errStepsFull  = fmt.Errorf("the results of all steps, or their names, would have more than %d bytes", maxSteps)
	errStepsKind  = errors.New("idem: Step: the record's steps were written by a later version")
	errNoSteps    = "idem: Step: the store, a %T, can't remember steps: it needs store.Capabilities.Checkpoint"
	errStepLost   = fmt.Errorf("idem: Step: another run may have begun: %w: %w", ErrLeaseLost, store.ErrLost)
	errStepsEnded = fmt.Errorf("idem: Step: the run has ended: %w", store.ErrLost)
)

// progress is what Derive and Step have made of a run, and what the record has told of earlier ones.
type progress struct {
	passed  *Refusal // of a request that a guard let pass: why
	secret  string   // that the record names; empty: the newest
	derived atomic.Bool

	once sync.Once
	id   store.ID // of an operation without one

	mu       sync.Mutex
	told     []byte // the steps in the record, until the first call of Step
	unopened error  // why they can't be opened
	steps    map[string]*step
	number   uint64 // of the latest checkpoint, or before all
	written  []byte // the steps in the record, since, without the number
	results  int    // the length of all results
	names    int
}

// step is a step that this run has called, or that an earlier one has finished.
type step struct {
	result string
	called bool
}

// progressed returns the progress of r, which is not nil.
func (r *Run) progressed() *progress {
	if p := r.progress.Load(); p != nil {
		return p
	}
	r.progress.CompareAndSwap(nil, new(progress))
	return r.progress.Load()
}

// resumes notes what the record has told of earlier runs. Most records tell nothing.
func (r *Run) resumes(grant *store.Grant) {
	if len(grant.Steps) > 0 || grant.Unopened != nil || grant.Secret != r.guard.engine.newest() {
		r.progress.Store(&progress{told: grant.Steps, unopened: grant.Unopened, secret: grant.Secret})
	}
}

// steps returns where the steps of r are. It is nil if they are not remembered.
func (r *Run) steps(name string) (*progress, error) {
	if r == nil {
		_, err := RequireRun(context.Background())
		return nil, err
	}
	switch can := &r.guard.engine.can; {
	case name == "" || len(name) > 255:
		return nil, errStepName
	case r.Unprotected():
		return nil, nil
	case can.Checkpoint == nil:
		return nil, fmt.Errorf(errNoSteps, r.guard.engine.store.Store)
	case r.inTx.Load() > 0:
		return nil, errStepInTx
	case r.ended.Load():
		return nil, errStepsEnded
	}
	return r.progressed(), nil
}

// The steps in a record begin with the number of their checkpoint, in 8 bytes, by which a store knows the newer of two (see
// [store.Capabilities]), and stepsVersion. Behind that are name and result of each, after their lengths.
const (
	stepsVersion = 1

	// beforeAll is less than the number of any checkpoint. Its first byte is greater than that of steps without a number, which
	// builds after 0.1.0 have written: 1, or 6 if they are sealed.
	beforeAll  = 7 << 56
	numberSize = 8
)

// enter begins a step, or returns the result that it has had.
func (p *progress) enter(name string) (result string, known bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps == nil {
		if err := p.read(); err != nil {
			return "", false, err
		}
	}
	s := p.steps[name]
	switch {
	case s == nil:
		p.steps[name] = &step{called: true}
		return "", false, nil
	case s.called:
		return "", false, fmt.Errorf("idem: Step: there is a step %q in this run already", name)
	}
	s.called = true
	return s.result, true, nil
}

// leave undoes enter: the step may be tried again.
func (p *progress) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.steps, name)
}

// read reads what the record has told.
func (p *progress) read() error {
	steps, written, number := map[string]*step{}, []byte{stepsVersion}, uint64(beforeAll)
	if p.unopened != nil {
		return fmt.Errorf("idem: Step: %w", p.unopened)
	}
	if len(p.told) > 0 {
		written = p.told
	}
	if len(written) > numberSize && written[0] == beforeAll>>56 {
		number, written = binary.BigEndian.Uint64(written), written[numberSize:]
	}
	if written[0] != stepsVersion {
		return errStepsKind
	}
	for rest := written[1:]; len(rest) > 0; {
		name, behind, ok1 := cutString(rest)
		result, behind, ok2 := cutString(behind)
		if !ok1 || !ok2 {
			return errStepsKind
		}
		steps[name] = &step{result: result}
		p.names, p.results = p.names+len(name), p.results+len(result)
		rest = behind
	}
	p.steps, p.number, p.written, p.told = steps, number, written, nil
	return nil
}

// remember writes the result of a step into the record. Others wait meanwhile: each writes all steps that have finished.
func (r *Run) remember(ctx context.Context, p *progress, name string, result []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.results+len(result) > maxSteps || p.names+len(name) > maxSteps {
		return errStepsFull
	}
	p.number++ // once for each checkpoint: the store may yet carry out one that has failed
	steps := make([]byte, numberSize, numberSize+len(p.written)+len(name)+len(result)+2*binary.MaxVarintLen32)
	binary.BigEndian.PutUint64(steps, p.number)
	steps = appendString(appendString(append(steps, p.written...), name), result)
	if err := r.guard.engine.checkpoint(ctx, r.key, r.owner, steps); err != nil {
		return err
	}
	p.written, p.names, p.results = steps[numberSize:], p.names+len(name), p.results+len(result)
	return nil
}

// BeginTx announces a transaction whose rollback would not undo what [Step] remembers. Until end is called, Step is an error. It is
// for stores. r may be nil.
func (r *Run) BeginTx() (end func()) {
	if r == nil {
		return noCancel
	}
	r.inTx.Add(1)
	return func() { r.inTx.Add(-1) }
}

// advanced reports whether the run has derived a key, or a step of its operation has finished and the run has asked for one.
func (r *Run) advanced() bool {
	p := r.progress.Load()
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.derived.Load() || len(p.written) > 1
}

func (e *Engine) checkpoint(ctx context.Context, key Key, owner store.Owner, steps []byte) error {
	return e.persist(ctx, "checkpoint", func(ctx context.Context) error { return e.can.Checkpoint(ctx, key.raw, owner, steps) })
}
