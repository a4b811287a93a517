package adapterkit

import (
	"context"
	"net/http"

	"github.com/idem-go/idem/core/adapter"
)

// Exchange is an [adapter.Exchange] and a [adapter.Deferrer] on net/http. An adapter embeds it in an exchange of its own, which
// is the [Framework], and adds the route in Describe. The zero Exchange is ready for Start. It must not be used
// concurrently.
type Exchange struct {
	request
	framework Framework
	finisher  *Finisher // nil: no Finish is mounted
	recorder  *Recorder
	below     http.ResponseWriter // that the recorder wraps
	above     http.ResponseWriter // that the handler gets
	partial   bool                // something was sent before the handler
	pending   bool                // the finisher will settle the run
	err       error               // that Next has returned
}

// Framework is what an [Exchange] asks of the adapter's own exchange, which embeds it. The adapter writes the first
// three methods. The Exchange has the others: override them if the framework has a writer of its own, or if the adapter has
// a Finish.
type Framework interface {
	// Writer returns the writer that handlers get now, and SetWriter sets it.
	Writer() http.ResponseWriter
	SetWriter(w http.ResponseWriter)
	// Next runs the handlers inside the guard with r as their request. It then gives the framework its own request
	// back, also after a panic, see [Adopt]. [core.Guard.Serve] returns the error as it is.
	Next(r *http.Request) error

	// Record returns a new recorder, and the writer for handlers, which writes to it.
	Record(ctx context.Context) (*Recorder, http.ResponseWriter)
	// Finisher returns what the adapter's Finish has put into the request, or nil. It is called once, before Next.
	Finisher() *Finisher
	// Reported returns the error that the handler has reported, and whether a response has been made of it. An error
	// without a response is a failure, unless a Finisher finds a response in the end.
	Reported() (err error, rendered bool)
	// Committed reports whether the framework takes the response for sent. It is not called if Writer returns one with
	// Status, Written and WriteHeaderNow, as Gin's has.
	Committed() bool
	// Forget is called when the whole response is dropped: the framework must no longer take it for sent.
	Forget()
}

// Finisher is a [adapter.Finisher] for the runs of an [Exchange]. An adapter's Finish puts a new one into the request, runs
// what is inside it, and then calls [adapter.Finisher.Finish].
type Finisher struct {
	adapter.Finisher
	front http.ResponseWriter // of the innermost guard, which wraps all others
}

// Start begins with request r. f is the adapter's exchange, which embeds x.
func (x *Exchange) Start(f Framework, r *http.Request) { x.framework, x.r = f, r }

// End is called when [core.Guard.Serve] has returned, but not after a panic: somebody may still hold the exchange. It gives
// the request its own body back, and reports whether the exchange may be zeroed and used again; if not, its run is still
// to be settled, further out.
func (x *Exchange) End() bool {
	if x.pending {
		return false
	}
	x.request.end()
	return true
}

// Record returns a new recorder as the writer, too.
func (x *Exchange) Record(context.Context) (*Recorder, http.ResponseWriter) {
	r := new(Recorder)
	return r, r
}

// Finisher returns nil: there is no Finish.
func (x *Exchange) Finisher() *Finisher { return nil }

// Reported returns the error of Next, of which no response has been made.
func (x *Exchange) Reported() (err error, rendered bool) { return x.err, false }

// Committed returns false: the framework does not tell.
func (x *Exchange) Committed() bool { return false }

// Forget does nothing.
func (x *Exchange) Forget() {}

// Answer implements the method of [adapter.Exchange]. If the framework's chain goes on after a middleware that returns,
// as Gin's does, the adapter's own Answer ends it first.
func (x *Exchange) Answer(r *adapter.Response) error {
	x.Undo()
	return Answer(x.framework.Writer(), r)
}

// Undo drops what the handler has answered, if it has run. Answer does so first; an adapter with an Answer of its own
// calls it.
func (x *Exchange) Undo() {
	if x.recorder != nil {
		x.framework.Forget()
		x.recorder.drop(true)
	}
}

// Pass implements the method of [adapter.Exchange].
func (x *Exchange) Pass(ctx context.Context) error { return x.framework.Next(x.rewound(ctx)) }

// Run implements the method of [adapter.Exchange].
func (x *Exchange) Run(ctx context.Context, limit int) (captured adapter.Capture, err error) {
	f := x.framework
	x.below, x.finisher = f.Writer(), f.Finisher()
	x.recorder, x.above = f.Record(ctx)
	x.recorder.start(ctx, x.below, x.above, limit)
	x.partial = x.committed()
	f.SetWriter(x.above)
	returned := false
	defer func() {
		f.SetWriter(x.below)
		switch {
		case !returned: // a panic or runtime.Goexit, which goes on
			x.drop()
		case captured.Ending == adapter.Deferred:
			if x.finisher.front == nil {
				x.finisher.front = x.above
			}
			f.SetWriter(x.finisher.front)
		}
	}()
	err = f.Next(x.forHandler(ctx, &x.recorder.lent))
	x.err, returned = err, true

	reported, rendered := f.Reported()
	open := reported != nil && !rendered
	noted := open && x.recorder.notes != nil // a status alone is no response to an error of Gin
	switch {
	case x.bypassed() || x.recorder.Written() && (!noted || x.recorder.Size() > 0 || x.recorder.sending()):
		// The handler has answered.
	case x.finisher != nil:
		return adapter.Capture{Ending: adapter.Deferred, Err: reported}, err
	case open:
		return adapter.Capture{Ending: adapter.Unrendered, Incomplete: x.partial, Err: reported}, err
	}
	return x.capture(), err
}

func (x *Exchange) capture() adapter.Capture {
	captured := x.recorder.capture()
	if x.partial || x.bypassed() {
		captured.Incomplete = true
		if captured.Ending == adapter.Empty {
			captured.Ending = adapter.Answered
		}
	}
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

// Defer implements [adapter.Deferrer].
func (x *Exchange) Defer(run adapter.Pending) {
	x.pending = true
	x.finisher.Defer(run, x.final)
}

// final is the capture of what a middleware further out has rendered; nil after a panic.
func (x *Exchange) final(returned bool) *adapter.Capture {
	if x.framework.Writer() == x.above {
		x.framework.SetWriter(x.below)
	}
	if !returned {
		x.drop()
		return nil
	}
	captured := x.capture()
	// A status that is only noted is the handler's, and says nothing of what became of its error.
	if !x.recorder.Written() && (x.bypassed() || captured.Err != nil && captured.Ending != adapter.Empty) {
		captured.Ending = adapter.Unrendered
	}
	return &captured
}

// Deliver implements the method of [adapter.Exchange].
func (x *Exchange) Deliver(fields []adapter.Field) error { return x.recorder.deliver(fields) }
