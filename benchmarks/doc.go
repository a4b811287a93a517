// Package benchmarks measures what a guard adds to a bare framework: the first request of
// an operation, and a replay, with a client key and with a key made of the parameters.
//
//	go test -run '^$' -bench . -benchmem ./benchmarks
//
// Every framework serves the same workload: a JSON body of 200 bytes, answered with 201
// and a small JSON body, into a writer that keeps nothing, with the in-process store.
// Each benchmark asserts that the workload is what it claims to be (that each first
// request ran its handler, and that no replay did), and then times. Compare the rows
// of one run: what a guard adds is the difference to "bare".
package benchmarks
