// Package adapterkit is for those who write an adapter, a package that mounts a [core.Guard] on a web
// framework. Applications need nothing of it: they mount httpidem, ginidem or another adapter.
//
// For a framework on net/http it has an [Exchange], which reads the request's body and lends it to the handler, holds
// the answer back, and tells what the handler has answered. The adapter is its [Framework], and fills in the route.
// [Verify] checks a signature. The package example is a whole adapter; ginidem has a writer and a Finish, too.
//
// For all frameworks it has the rules that don't depend on one: which header fields are the handler's own ([Changed]), and
// what a signature tells a guard ([WithSigner]) or a client ([ResponseOf]). Packages echokit and fasthttpkit have what
// versions of one framework share.
//
// Package core/adaptertest is the suite for adapters.
package adapterkit
