// Package adapterkit is for those who write an adapter, a package that mounts a [core.Guard] on a web
// framework. Applications need nothing of it: they mount httpidem, ginidem, echoidem or fiberidem.
//
// For a framework on net/http it has an [Exchange], which lends the request's body to the handler, holds the
// answer back, and knows what a handler has answered, and what is left to middleware further out. The adapter
// is its [Framework], and fills in the route. [Verify] checks a signature. ginidem is a short example.
//
// For all frameworks it has the rules that don't depend on one: how memory grows with a body
// ([Buffer]), which header fields are the handler's own ([Changed]), and what a signature tells a guard
// ([WithSigner]) or a client ([ResponseOf]).
//
// Package core/adaptertest checks what comes of it.
package adapterkit
