package adapter

import "context"

// RunKey is the key under which the context of a run has the run itself, a [Sender].
type RunKey struct{}

// Sender is a run as the adapter talks to it while the handler runs, by [PartSent] and [MayStream]. Core implements it.
type Sender interface {
	PartSent(streaming bool)
	MayStream() bool
}

// MayStream reports whether the client of the run to which ctx belongs can see what the handler
// flushes. It is false if the client has left before anything was streamed. The adapter then goes on
// holding back what it can, as if the handler had not flushed: the run goes on, and its answer is
// there for the retry.
func MayStream(ctx context.Context) bool {
	run, _ := ctx.Value(RunKey{}).(Sender)
	return run == nil || run.MayStream()
}

// PartSent tells the run to which ctx belongs that a part of its response has been sent before the
// handler has returned. streaming says that the client sees what is sent at once; the run's context
// then ends when the client leaves.
func PartSent(ctx context.Context, streaming bool) {
	if run, _ := ctx.Value(RunKey{}).(Sender); run != nil {
		run.PartSent(streaming)
	}
}
