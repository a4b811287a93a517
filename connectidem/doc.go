// Package connectidem has interceptors for Connect (connectrpc.com/connect) that run a unary call once, over its three protocols: Connect,
// gRPC and gRPC-Web. What is sent again, by a client that came back, or a proxy, gets the first answer: the message, or the
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
// The procedure, the user and the key, which is in the header field Idempotency-Key or in a field of the request ([KeyField]). The
// fingerprint is the request in Protobuf's deterministic form, also if it was sent as JSON: another request under a known key
// is refused. Each procedure is a task of core with the procedure's name; [core.RunFrom] returns the run in a handler.
//
// # What passes
//
// Streams, procedures that are declared to have no side effects (so all that come by GET), the services health and channelz, and
// what [Config].Methods leaves out. [Guard.Passing] lists them, and says what can't be protected as the Config means it.
//
// # What a call gets
//
//	first                      the handler's answer
//	duplicate, done            the same, and Idempotent-Replayed: true in the header
//	duplicate, running         unavailable, with grpc-retry-pushback-ms, by which [Client] waits; core.Wait waits first
//	after a failed code        runs ([FailedByCode], [Config].Failed); after a panic, too
//	begun, never finished      runs when the lease has passed, or failed_precondition
//	another request, same key  failed_precondition
//	no key                     invalid_argument
//	no user                    unauthenticated
//	store can't be reached     unavailable; the handler does not run
//
// A refusal has a google.rpc.ErrorInfo with the code, which [Refused] returns. The page docs/rpc.md has all of them, what of metadata is
// stored, and what a rollout of a new schema does: fields that the server does not know count, so that the retry of a call
// may be refused if the server learns them between the two tries.
//
// # What it cannot do
//
// The handler's work and its record are two steps, as everywhere: see package core. A client that leaves does not end its run
// ([Config].Linger); a deadline does. An interceptor outside gets a replay's message from Any of its response, which is no
// [connect.Response].
package connectidem
