// Package adapterkit is for authors of adapters: packages that mount a [core.Guard] on a web framework. Applications do not need
// it: they mount httpidem, ginidem or another adapter.
//
// For a framework on net/http it has an [Exchange]. The Exchange reads the request's body and lends it to the handler, holds back
// the answer, and reports what the handler has answered. The adapter is its [Framework], and fills in the route. [Verify] checks a
// signature. The package example is a complete adapter; ginidem has a writer and a Finish as well.
//
// For all frameworks it has the rules that do not depend on one: which header fields are the handler's own ([Changed]), and what a
// signature means for a guard ([WithSigner]) or a client ([ResponseOf]). Packages echokit and fasthttpkit have what versions of
// one framework share.
//
// Package core/adaptertest is the suite for adapters.
package adapterkit
