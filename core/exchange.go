package core

import (
	"context"
	"errors"
)

// Exchange is one HTTP request and its response, seen through an adapter. It is all
// that an adapter has to supply: [Guard.Serve] decides what happens in which order,
// the exchange only does it. None of its methods is called concurrently.
//
// Package adapterkit has what exchanges are built on, and package core/adaptertest checks one against
// the rules below.
type Exchange interface {
	Headers

	// Describe fills in the request's plain values, all but Body and Headers. The
	// Request that is passed in is blank, but PathParams may have capacity to
	// append to.
	Describe(r *Request)

	// ReadBody returns the whole body as sent and leaves the request so that the
	// handler, too, can read all of it, in any way that the framework offers. It
	// returns [ErrBodyTooLarge] for a body of more than limit bytes, and that error
	// too if something in front (http.MaxBytesReader) has already drawn the line
	// lower. It reads no more than it needs to know that. The bytes must not change
	// until Serve returns.
	//
	// A body that somebody in front has read, in whole or in part, is put together again from
	// what was parsed of it, if that is all of it; else it is [ErrBodyConsumed]. The body of
	// one request must never be less than what was sent.
	ReadBody(limit int64) ([]byte, error)

	// Answer writes r instead of running the handler, and ends the chain of
	// handlers. A header field of r replaces all fields of the same name that are
	// already set in the response, never adds to them; several fields of one name
	// in r are all written. Content-Length is the adapter's to set. The bytes of r must not
	// be changed: others may be answered with the same ones. After a Run that has returned, it is
	// called in place of Deliver: what Run has held back is dropped.
	Answer(r *Response) error

	// Pass runs the handler without recording anything. The error is the framework's
	// own and is returned by Serve as it is.
	Pass() error

	// Run runs the handler with ctx as the request's context and captures what it
	// answers. Framework errors are rendered here (echo's c.Error, Fiber's
	// ErrorHandler) so that the capture holds what the client gets.
	//
	// The response is the client's, byte for byte as without a guard. An adapter
	// may hold back at most limit bytes of body until Deliver is called; when the
	// body grows beyond that, or the handler flushes, hijacks or streams, it sends
	// what it has and captures no more (Capture.Incomplete).
	//
	// When a part of the response leaves before the handler has returned, Run calls [PartSent]
	// with ctx. Before it lets a part leave because the handler has flushed it, it asks [MayStream].
	//
	// If the handler panics, Run puts the framework's own writer back, drops what it has held
	// back, header fields included if the handler had sent a status, and lets the panic go on: the
	// run has failed, and whoever recovers says so.
	//
	// The error is the framework's own, for a middleware further out; Serve returns it
	// as it is. It is nil when the error has been rendered.
	Run(ctx context.Context, limit int) (Capture, error)

	// Deliver sends what Run has held back, with fields added to its header (in place of
	// others of the same name) if it has not been sent yet. It is called once after each Run
	// that returned, when the result is safely stored or is known not to be.
	Deliver(fields []Field) error
}

// Capture is what [Exchange.Run] has seen of the handler's answer.
type Capture struct {
	// Response is the final response as the client gets it. It is read only until
	// Deliver is called, so that an adapter may reuse it. Never nil, unless
	// Deferred or Unrendered is set.
	Response *Response
	// Incomplete says that Response.Body is not the whole body, because it was
	// larger than the limit, streamed, flushed or hijacked.
	Incomplete bool
	// Empty says that the handler has written nothing at all: no status, no body; header fields
	// do not count. The Response is then what the framework makes of that.
	Empty bool
	// Cut says that a streamed response could not be sent to its end. What is merely large is
	// not cut: its handler has done its work, and that must not be done again because the client
	// has not taken all of the answer.
	Cut bool
	// RunsOn says that somebody has answered in the handler's place, as a timeout does, and that
	// the handler may still be running. The claim then stands until its lease has passed: what
	// the handler does must not be done again beside it.
	RunsOn bool
	// Deferred says that the outcome is not known yet: the handler returned an error which a
	// middleware further out will render, or the framework writes a stream after Run has
	// returned. Serve then leaves the claim standing and calls Defer on the exchange, which
	// must implement [Deferrer].
	Deferred bool
	// Unrendered says that the handler returned an error and no body, and that the
	// adapter has no way to see what a middleware further out makes of it. The run
	// counts as failed. Incomplete then says that something has been sent all the same.
	Unrendered bool
	// Err is the error that the handler reported in the framework's own way, if any. It is
	// for the observer, unless it is a [Refusal]: then that is answered, if nobody has rendered
	// it (Unrendered, or a status of 500, which frameworks give to errors that they don't know).
	Err error
}

// Deferrer is implemented by exchanges whose framework decides on the response after Run has
// returned.
type Deferrer interface {
	// Defer receives the pending run. The adapter hands it to a [Finisher], or calls
	// Pending.Finish itself: once, with the final capture when the response is known, or
	// with nil after a panic. The capture may hold a body over the limit. The exchange must
	// not be used for another request before that.
	Defer(p *Pending)
}

// ErrBodyTooLarge is what [Exchange.ReadBody] returns for a body over the limit.
var ErrBodyTooLarge = errors.New("idem: the request body is over the limit")

// ErrBodyConsumed is what [Exchange.ReadBody] returns for a body that a middleware in front has
// read, so that it cannot be had any more.
var ErrBodyConsumed = errors.New("idem: a middleware in front has read the request body; mount the guard in front of it, or let it put the body back")
