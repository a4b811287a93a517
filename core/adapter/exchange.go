// Package adapter is what core needs from an adapter: the interface [Exchange], the values that its methods take and
// return, and what finds out how a response ends that is made after the handler has returned. Applications need none of it.
//
// Package adapterkit has what exchanges are built on, and package core/adaptertest checks one against the rules that are
// written here.
package adapter

import (
	"context"
	"errors"
)

// Exchange is one HTTP request and its response, seen through an adapter. It is all that an adapter has to
// supply: core.Guard.Serve decides what happens in which order, and the exchange does it. Its methods are
// not called concurrently.
type Exchange interface {
	Headers

	// Describe fills in the request's plain values, all but Body, Headers and what the engine
	// fills in. r is blank, but PathParams may have capacity to append to.
	Describe(r *Request)

	// ReadBody returns the whole body as sent. The handler can still read all of it, in any way
	// that the framework offers. ReadBody returns [ErrBodyTooLarge] for a body of more than limit
	// bytes, or of more than a lower outer limit allows (http.MaxBytesReader), and reads no more
	// than it needs to know that. The bytes must not change until Serve returns.
	//
	// If an outer middleware has read the body, or a part of it, ReadBody puts the body together
	// again from what was parsed, if that is all of it; else it returns [ErrBodyConsumed]. It never
	// returns less than what was sent.
	ReadBody(limit int64) ([]byte, error)

	// Answer writes r instead of running the handler, and ends the chain of handlers. A header
	// field of r replaces all fields of the same name that are already set in the response, and
	// those in r.Removed are deleted; several fields of one name in r are all written. The adapter sets Content-Length. It must
	// not change the bytes of r, which may answer other requests, too. After a Run that has
	// returned, Answer is called in place of Deliver, and drops what Run has held back.
	Answer(r *Response) error

	// Pass runs the handler with ctx as the request's context, and captures nothing. ctx may be the one that the request has.
	// Serve returns its error, the framework's own, as it is.
	Pass(ctx context.Context) error

	// Run runs the handler with ctx as the request's context, and captures its answer. It renders
	// framework errors (echo's c.Error, Fiber's ErrorHandler), so that the capture holds what the
	// client gets.
	//
	// The client gets the response byte for byte as without a guard. Run may hold back at most
	// limit bytes of body until Deliver is called. When the body grows beyond that, or the handler
	// flushes, hijacks or streams, it sends what it has and captures no more (Capture.Incomplete).
	//
	// When Run sends a part of the response before the handler has returned, it calls [PartSent]
	// with ctx. Before it sends a part because the handler has flushed it, it asks [MayStream].
	//
	// If the handler panics, Run puts the framework's own writer back and drops what it has held
	// back, header fields included if the handler had sent a status. The panic goes on: the run has
	// failed, and the middleware that recovers answers.
	//
	// The error is the framework's own, for a middleware further out; Serve returns it
	// as it is. It is nil when the error has been rendered.
	Run(ctx context.Context, limit int) (Capture, error)

	// Deliver sends what Run has held back. If the header has not been sent yet, fields replace
	// those of the same names in it. Deliver is called once after each Run that returned, when
	// the run is settled.
	Deliver(fields []Field) error
}

// Capture is what [Exchange.Run] has seen of the handler's answer.
type Capture struct {
	// Response is the final response as the client gets it. The engine does not use it after it
	// has called Deliver, so that an adapter may reuse it. It is nil only if Ending is Deferred or
	// Unrendered.
	Response *Response
	// Ending says how the run has ended. Zero: the handler has answered.
	Ending Ending
	// Incomplete says that Response.Body is not the whole body, because it was larger than the limit,
	// streamed, flushed or hijacked; or, with Unrendered, that something has been sent all the same. If
	// the record is kept, it is without the response.
	Incomplete bool
	// Err is the error that the handler reported in the framework's own way, if any. The
	// observer gets it. If it is a core.Refusal, the run has failed, and its record is not kept. If nothing
	// has rendered it (Empty, Unrendered, or a status of 500, which frameworks give to errors that they
	// don't know) and nothing was sent, the client gets that refusal.
	Err error
}

// Ending is how a run has ended, as its adapter has seen it. It decides what the client gets and, unless the
// handler has decided (core.Run.Keep), what becomes of the record. If several endings apply, the last one of
// this list counts.
type Ending uint8

const (
	// Answered: the handler has answered, and the client gets that. core.Policy.Failed tells whether it is a
	// success, whose record is kept, or a failure, whose record is released; see core.Policy.OnSuccess.
	Answered Ending = iota
	// Empty: the handler has written neither a status nor a body; Response is what the framework makes of
	// that, and counts as an answer. But with an Err the run has failed as if Unrendered. If the context of
	// the run had ended when the handler returned, the handler has given up: the run has failed, its record is not
	// kept, and the client gets a refusal (unfinished, shutting_down).
	Empty
	// Unrendered: the handler has reported an error and written no body, and the adapter can't see what a
	// middleware further out makes of it. The run has failed, and its record is released
	// (core.Policy.OnFailure). The client gets what that middleware makes of the error.
	Unrendered
	// Cut: a streamed response could not be sent to its end. The run has failed, and its record is
	// abandoned: the client has a part of the answer. A response that is merely large is not cut: its
	// handler has done its work, which must not be done again because the client has not taken all of
	// the answer.
	Cut
	// RunsOn: a middleware has answered in the handler's place, as a timeout does, and the client gets
	// that; the handler may still be running. The run has failed. Its record stays as it is until the
	// lease has passed, whatever the handler has decided, so that no other run begins alongside it.
	RunsOn
	// Deferred: the ending is not known yet. The handler returned an error which a middleware further out
	// will render, or the framework writes a stream after Run has returned. Serve leaves the record and
	// the answer to [Pending.Finish]: it calls Defer on the exchange, which must implement [Deferrer].
	Deferred
)

// Deferrer is implemented by exchanges whose framework decides on the response after Run has
// returned ([Deferred]).
type Deferrer interface {
	// Defer receives the pending run. The adapter hands it to a [Finisher] or a [Stream], or calls
	// Pending.Finish itself: once, with the final capture when the response is known, or
	// with nil after a panic. The capture may hold a body over the limit. The exchange must
	// not be used for another request before that.
	Defer(p Pending)
}

// Pending is a run whose ending is known only after [Exchange.Run] has returned, see [Deferrer]. Core implements it. It is
// safe for concurrent use.
type Pending interface {
	// Finish settles the run by the final answer, and then has the exchange deliver it. A nil c means
	// that the handler has panicked: nothing is delivered. The error is the delivery's. Calls after the
	// first do nothing, and return nil.
	Finish(c *Capture) error
	// Err is not nil once the run's context has ended.
	Err() error
}

// ErrBodyTooLarge is what [Exchange.ReadBody] returns for a body over the limit.
var ErrBodyTooLarge = errors.New("idem: the request body is over the limit")

// ErrBodyConsumed is what [Exchange.ReadBody] returns for a body that an outer middleware has
// read, and that can't be put together again.
var ErrBodyConsumed = errors.New(
	"idem: an outer middleware has read the request body; mount the guard outside it, or let it put the body back")

// ErrUnrendered is in the Err of the event of a run whose handler has reported an error that nothing has rendered, as far as
// the guard could see. The run has failed.
var ErrUnrendered = errors.New("idem: no response to the handler's error was seen")
