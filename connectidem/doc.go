// Package connectidem has interceptors for Connect (connectrpc.com/connect) that run a unary call once, over its three protocols: Connect,
// gRPC and gRPC-Web. A call that a returning client or a proxy repeats gets the first answer: the message, or the
// error with its details.
//
//	engine, err := core.New(core.Config{Service: "shop", Store: store}) // all instances share the store
//	…
//	guard, err := connectidem.New(engine, connectidem.Config{User: userOf}) // the user that auth found
//	…
//	mux.Handle(orderv1connect.NewOrdersHandler(orders, connect.WithInterceptors(auth, guard)))
//
// and on the client:
//
//	orderv1connect.NewOrdersClient(http.DefaultClient, url, connect.WithInterceptors(connectidem.Client(connect.CodeUnavailable)))
//
// # What is one operation
//
// An operation is the procedure, the user and the key, which is in the header field Idempotency-Key or in a field of the request
// ([KeyField]). The fingerprint is the request in Protobuf's deterministic form, also if it was sent as JSON: another request under a
// known key is refused. Each procedure is a task of core with the procedure's name; [core.RunFrom] returns the run in a handler.
//
// # What passes
//
// Streams, procedures that are declared to have no side effects (which includes all GET requests), the services health and channelz,
// and procedures that [Config].Methods leaves out. [Guard.Passing] lists them, and reports those that Config means to protect and that
// can't be.
//
// # What a call gets
//
//	first                      the handler's answer
//	duplicate, done            the same, and Idempotent-Replayed: true in the header
//	duplicate, running         unavailable, with grpc-retry-pushback-ms, which [Client] obeys; core.Wait waits first
//	after a failed code        runs ([FailedByCode], [Config].Failed); after a panic, too
//	begun, never finished      runs when the lease has passed, or failed_precondition
//	another request, same key  failed_precondition
//	no key                     invalid_argument
//	no user                    unauthenticated
//	store can't be reached     unavailable; the handler does not run
//
// A refusal has a google.rpc.ErrorInfo with the code, which [Refused] returns. docs/rpc.md lists the codes, and says which metadata is
// stored and what the rollout of a new schema does: unknown fields count, so the retry of a call may be refused if the server learns a
// field between the two tries.
//
// # What it cannot do
//
// The handler's work and its record are two steps: see package core. A client that leaves does not end its run ([Config].Linger); a
// deadline does. On a replay, outer interceptors get the message from the response's Any: it is not a
// *[connect.Response].
package connectidem
