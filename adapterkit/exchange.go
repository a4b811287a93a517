package adapterkit

import (
	"context"
	"net/http"

	"github.com/idem-go/idem/core"
)

// Exchange is a [core.Exchange] and a [core.Deferrer] on net/http, for an adapter to embed in its own, which
// is the [Framework]. It is made to be reused, from Start to End, and must not be used concurrently. The zero
// Exchange is ready for Start.
type Exchange struct {
	request
	framework Framework
	finisher  *Finisher // nil: no Finish is mounted
	recorder  *Recorder
	below     http.ResponseWriter // that the recorder stands in front of
	above     http.ResponseWriter // that the handler gets
	partial   bool                // something was sent before the handler
	pending   bool                // the finisher will complete the run
}

// Framework is what an [Exchange] asks of an adapter's own exchange, which embeds it, and so has the
// methods from Record on. They are for a framework with a writer of its own, and for one in which errors become
// responses further out.
type Framework interface {
	// Writer returns the writer that handlers get now, and SetWriter sets it.
	Writer() http.ResponseWriter
	SetWriter(w http.ResponseWriter)
	// Next runs the handlers behind the guard with r, and then puts the request back, see [Adopt]. The error
	// is for middleware further out.
	Next(r *http.Request) error

	// Record returns a new recorder, and the framework's own writer on it.
	Record(ctx context.Context) (*Recorder, http.ResponseWriter)
	// Finisher returns the request's, or nil. It is asked for once, before Next.
	Finisher() *Finisher
	// Reported returns the error that the handler has reported, and whether a response has been made of it.
	Reported() (err error, rendered bool)
	// Committed reports whether the framework takes the response for sent. A writer of Gin tells by itself.
	Committed() bool
	// Forget is called when all of the response is dropped. The framework must not take it for sent.
	Forget()
}

// Finisher is a [core.Finisher] for the runs of exchanges.
type Finisher struct {
	core.Finisher
	front http.ResponseWriter // of the innermost guard, in front of all others
}

// Start begins with another request. f embeds x.
func (x *Exchange) Start(f Framework, r *http.Request) { x.framework, x.r = f, r }

// End forgets the request, and reports whether its memory may be used again. A run that is to be
// finished further out needs it.
func (x *Exchange) End() bool {
	if x.pending {
		return false
	}
	x.request.end()
	return true
}

// Record returns a recorder twice.
func (x *Exchange) Record(context.Context) (*Recorder, http.ResponseWriter) {
	r := new(Recorder)
	return r, r
}

// Finisher returns nil.
func (x *Exchange) Finisher() *Finisher { return nil }

// Reported returns nothing.
func (x *Exchange) Reported() (err error, rendered bool) { return nil, false }

// Committed returns false.
func (x *Exchange) Committed() bool { return false }

// Forget does nothing.
func (x *Exchange) Forget() {}

// Answer implements the method of [core.Exchange].
func (x *Exchange) Answer(r *core.Response) error {
	x.Undo()
	return Answer(x.framework.Writer(), r)
}

// Undo drops what the handler has answered, if it has run, for another answer to stand in its place.
func (x *Exchange) Undo() {
	if x.recorder != nil {
		x.framework.Forget()
		x.recorder.drop(true)
	}
}

// Pass implements the method of [core.Exchange].
func (x *Exchange) Pass() error { return x.framework.Next(x.rewound()) }

// Run implements the method of [core.Exchange].
func (x *Exchange) Run(ctx context.Context, limit int) (captured core.Capture, err error) {
	f := x.framework
	x.below, x.finisher = f.Writer(), f.Finisher()
	x.recorder, x.above = f.Record(ctx)
	x.recorder.start(ctx, x.below, limit)
	x.partial = x.committed()
	f.SetWriter(x.above)
	returned := false
	defer func() {
		f.SetWriter(x.below)
		switch {
		case !returned: // a panic or runtime.Goexit, which goes on
			x.drop()
		case captured.Deferred:
			if x.finisher.front == nil {
				x.finisher.front = x.above
			}
			f.SetWriter(x.finisher.front)
		}
	}()
	err = f.Next(x.forHandler(ctx, &x.recorder.lent))
	returned = true

	reported, rendered := f.Reported()
	open := reported != nil && !rendered // and a status alone is no response to an error
	switch {
	case x.bypassed() || x.recorder.Written() && (!open || x.recorder.Size() > 0 || x.recorder.sending()):
		// The handler has answered.
	case x.finisher != nil:
		return core.Capture{Deferred: true, Err: reported}, err
	case open:
		return core.Capture{Unrendered: true, Err: reported, Incomplete: x.partial}, err
	}
	return x.capture(), err
}

func (x *Exchange) capture() core.Capture {
	captured := x.recorder.capture()
	past := x.partial || x.bypassed()
	captured.Incomplete = captured.Incomplete || past
	captured.Empty = captured.Empty && !past
	captured.Err, _ = x.framework.Reported()
	return captured
}

func (x *Exchange) committed() bool {
	if x.recorder.notes != nil {
		return x.recorder.notes.Written()
	}
	return x.framework.Committed()
}

// bypassed reports whether a response was written past the recorder.
func (x *Exchange) bypassed() bool { return !x.partial && !x.recorder.Written() && x.committed() }

// drop drops what the recorder holds back.
func (x *Exchange) drop() {
	if !x.partial && !x.bypassed() && !x.recorder.sending() {
		x.framework.Forget()
	}
	x.recorder.drop(false)
}

// Defer implements [core.Deferrer].
func (x *Exchange) Defer(run *core.Pending) {
	x.pending = true
	x.finisher.Defer(run, x.final)
}

// final is the capture of what a middleware further out has rendered; nil after a panic.
func (x *Exchange) final(returned bool) *core.Capture {
	if x.framework.Writer() == x.above {
		x.framework.SetWriter(x.below)
	}
	if !returned {
		x.drop()
		return nil
	}
	captured := x.capture()
	// A status that is only noted is the handler's, and says nothing of what became of its error.
	captured.Unrendered = !x.recorder.Written() && (x.bypassed() || captured.Err != nil && !captured.Empty)
	return &captured
}

// Deliver implements the method of [core.Exchange].
func (x *Exchange) Deliver(fields []core.Field) error { return x.recorder.deliver(fields) }
