// Package fasthttpkit is for authors of adapters for frameworks on fasthttp, as package adapterkit is for frameworks on net/http.
// Applications do not need it: they mount fiberidem or fiber3idem.
//
// It has an [Exchange], which reads the request's body, leaves it for the handler, and reports what the handler has answered. The
// adapter is its [Framework], and fills in the method and the [Place]. [Verify] checks a signature. [Finish] is for Fiber. The
// package example is a complete adapter.
//
// It works with fasthttp 1.58 and later. Versions differ in how they treat a trailer, and in whether they keep the order of
// fields. This package hides these differences.
package fasthttpkit
