// Package operations is for operators: people or programs that look at a service's records and decide about operations
// that are stuck. [Of] returns the operations of an engine:
//
//	ops, err := operations.Of(engine, operations.Options{})
//	…
//	for op, err := range ops.List(ctx, operations.Query{States: []store.State{store.Abandoned}, OlderThan: time.Hour}) {
//		…
//		err = ops.Release(ctx, op, operations.By{Actor: "ana", Reason: "the bank has no such charge"})
//	}
//
// # What an operator can do
//
//	Release   lets an abandoned operation run again, even under core.Uncertain: the next request runs, as a takeover
//	Settle    finishes an abandoned or free operation: every duplicate gets this response
//	Forget    removes the record: the next request is a first one
//
// Each action applies to what the operator saw: if another run or another operator has changed the record since, the
// error is [store.ErrMovedOn], and nothing changes. Repeating an action has no further effect.
//
// [Options].Audit is called before each action, and can forbid it. Each action is an event for [core.Config].Observe,
// whether it succeeded or not.
//
// # What is left out
//
// Records of nonces are not operations: they are never listed, found or changed.
package operations
