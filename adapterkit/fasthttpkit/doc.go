// Package fasthttpkit is for those who write an adapter for a framework on fasthttp, as package adapterkit is for
// frameworks on net/http. Applications need nothing of it: they mount fiberidem or fiber3idem.
//
// It has an [Exchange], which reads the request's body and leaves it for the handler, and tells what the handler has answered. The
// adapter is its [Framework], and fills in the method and the [Place]. [Verify] checks a signature. [Finish] is for Fiber. The package
// example is a whole adapter.
//
// It works with fasthttp 1.58 and later. Versions differ in what they make of a trailer, and in whether they keep the order of
// fields; that is evened out here.
package fasthttpkit
