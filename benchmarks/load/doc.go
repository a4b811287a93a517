// Package load puts a service under load over TCP, from many connections, and holds it to
// what it promises while it measures.
//
//	service, err := load.Start(ctx, program, "-framework", "gin", "-store", "memory")
//	if err != nil {
//		return err
//	}
//	defer service.Stop()
//	result, err := load.Run(ctx, load.Plan{Services: []*load.Service{service}, Duration: 3 * time.Second, Duplicates: 0.1})
//
// # Closed loop and open loop
//
// In a closed loop each connection sends its next request when it has the answer to the last
// one. That finds the throughput. Its latencies flatter: while the service stalls, nobody
// asks, and so a stall counts once for each connection, however many requests would have come.
//
// In an open loop requests are due at a fixed rate, whatever the service does, and latency
// counts from the time at which a request was due. One that has to wait because all
// connections are busy counts that wait, too. What a user sees is the open loop.
//
// # What is checked
//
// An operation is asked for once, or, for duplicates, again. The service counts how often it
// has carried out each one. [Run] fails with an [OutcomeError] unless each operation was carried
// out exactly once, by one process, one of its answers was the first (201, unmarked),
// and every other one was either the same answer again (201, Idempotent-Replayed, the same
// bytes) or a refusal that the contract allows (409 with Retry-After). A service without
// a guard must carry out each request.
package load
