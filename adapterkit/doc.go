// Package adapterkit is for those who write an adapter, a package that mounts a [core.Guard] on a web
// framework. Applications need nothing of it: they mount httpidem, ginidem, echoidem or fiberidem.
//
// For a framework on net/http it has both sides of a [core.Exchange]: [Request] is the request, whose
// body is read and lent to the handler, and [Recorder] the response writer that holds the answer back.
// [Answer] writes a replay or a refusal, [Verify] checks a signature, and [Adopt] takes over what a
// handler has left in its copy of the request. ginidem is a short example.
//
// For all frameworks it has the rules that don't depend on one: how memory grows with a body
// ([Buffer]), which header fields are the handler's own ([Changed]), and what a signature tells a guard
// ([WithSigner]) or a client ([ResponseOf]).
//
// Package core/adaptertest checks what comes of it.
package adapterkit
