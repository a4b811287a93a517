// Package operations is for operators: people, or programs, that look at the records of a service and decide about
// operations that are stuck. [Of] makes them of an engine:
//
//	ops, err := operations.Of(engine, operations.Options{})
//	…
//	for op, err := range ops.List(ctx, operations.Query{States: []store.State{store.Abandoned}, OlderThan: time.Hour}) {
//		…
//		err = ops.Release(ctx, op, operations.By{Actor: "ana", Reason: "the bank knows nothing of it"})
//	}
//
// # What an operator can do
//
//	Release   an abandoned operation may run again, also under core.Uncertain: the next request runs, as a takeover
//	Settle    an abandoned or free operation is done: every duplicate gets this answer
//	Forget    the record is removed: the next request is a first one
//
// Each is done to what the operator has seen: if another run, or another operator, has changed the record meanwhile, the
// error is [store.ErrMovedOn], and nothing is changed. So to do one twice does it once.
//
// [Options].Audit is asked before each, and can forbid it. Each is an event for [core.Config].Observe, done or not.
//
// # What is left out
//
// Records of nonces are no operations. They are not listed, found or changed.
package operations
