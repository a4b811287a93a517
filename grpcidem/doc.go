// Package grpcidem has interceptors for gRPC (google.golang.org/grpc) that run a unary call once. A call that a retry
// policy, a returning client or a proxy repeats gets the first answer: the message, or the status with its details.
//
//	engine, err := core.New(core.Config{Service: "shop", Store: store}) // all instances share the store
//	…
//	guard, err := grpcidem.New(engine, grpcidem.Config{User: userOf}) // the user that auth found
//	…
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(recovery, auth, guard.Unary))
//	…                                     // register the services
//	passing, err := guard.Passing(server) // streams, and methods that you left out
//
// and on the client:
//
//	grpc.NewClient(target, grpc.WithChainUnaryInterceptor(grpcidem.Client()), …)
//
// # What is one operation
//
// An operation is the full method, the user and the key, which is in the metadata idempotency-key or in a field of the request
// ([KeyField]). The fingerprint is the request in Protobuf's deterministic form: another request under a known key is refused. Each
// method is a task of core with the method's name; [core.RunFrom] returns the run in a handler.
//
// # What passes
//
// Streams, methods that are declared to have no side effects (idempotency_level), the services health and channelz, and methods that
// [Config].Methods leaves out. [Guard.Passing] lists them, and reports methods that Config means to protect and that can't be.
//
// # What a call gets
//
//	first                      the handler's answer
//	duplicate, done            the same, and idempotent-replayed: true in the header
//	duplicate, running         UNAVAILABLE, with grpc-retry-pushback-ms, which retry policies obey; core.Wait waits first
//	after a failed status      runs ([FailedByCode], [Config].Failed); after a panic, too
//	begun, never finished      runs when the lease has passed, or FAILED_PRECONDITION
//	another request, same key  FAILED_PRECONDITION
//	no key                     INVALID_ARGUMENT
//	no user                    UNAUTHENTICATED
//	store can't be reached     UNAVAILABLE; the handler does not run
//
// A refusal has a google.rpc.ErrorInfo with the code, which [Refused] returns. docs/rpc.md lists the codes, and says which metadata is
// stored and what the rollout of a new schema does: unknown fields count, so the retry of a call may be refused if the server learns a
// field between the two tries.
//
// # What it cannot do
//
// The handler's work and its record are two steps: see package core. A client that leaves does not end its run ([Config].Linger); a
// deadline does.
package grpcidem
