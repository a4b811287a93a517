// Package idemclient sends requests to services that are protected by an idempotency key until they have an answer, and lets
// each operation happen once. It needs the standard library only, and knows the answers of this module's guards and those of
// other services with an Idempotency-Key (draft-ietf-httpapi-idempotency-key-header).
//
//	client := &http.Client{Transport: &idemclient.Transport{Hosts: []string{"api.example.com"}}}
//	resp, err := client.Post("https://api.example.com/payments", "application/json", body)
//
// A nil error means that the response is the operation's answer. An [*Error] means that there is none yet: it has the key
// under which the caller may go on.
//
// # What it does
//
//   - A connection error, the time limit of one try ([Transport.TryTimeout]), 408, 425, 429, 502, 503, 504, and the
//     refusals store_unavailable, shutting_down, unfinished and rate_limited under any status: it tries again, with the
//     same key and the same bytes.
//   - The refusal in_progress under any status, and a 409 whose JSON has the code idempotency_in_flight or
//     idempotency_key_in_use: it waits as Retry-After says, and asks again until the operation has an answer. This counts
//     neither as a try nor in the budget. Bound it by the request's context.
//   - Any other answer, such as 400, 401, 403, 409, 413, 422 and 500, is returned. Many services replay a 500; for those that
//     do not, [Transport.Retry500] lets it be tried again.
//   - Retry-After beyond [Transport.MaxWait] or the context's deadline, no more tries, no more budget, the context's end:
//     it returns an [*Error] at once, with the last response. net/http drops a response that comes with an error, so it is
//     in there.
//   - Past [Transport.KeyLifetime], or the Idempotency-Key-Expires of an answer: it sends nothing more. The service may have
//     forgotten the key, so the operation could happen twice: [ErrOutcomeUnknown].
//
// JSON, and what tells that it is short, is read before it is returned, up to 64 KiB: an answer that breaks off counts as a
// connection error. If a longer one or a stream breaks off, the caller goes on with the Idempotency-Key in the Header of
// the response's Request.
//
// # Keys
//
// A request that asks for something to be done (POST, PUT, PATCH, DELETE, and every other method that is not safe by RFC
// 9110 or RFC 10008) has an Idempotency-Key. It is the request's own, if the caller has set the field; or that of [WithKey]; or a new
// one of 128 random bits. It is the same in all tries, and in redirects to guarded hosts that keep the method (307, 308).
// Redirects that change the method (301, 302, 303) are followed once, without a key. A redirect to a host that is not
// guarded does not get the key. GET, HEAD, OPTIONS, TRACE and QUERY get no key, and are tried again like the others.
//
// One request is one operation: a loop that sends a request anew after an error needs WithKey, or each round is an
// operation of its own. A key that lives in this process only is lost with it. Where an operation must not happen twice
// after a crash either, store a key before the first try, and use WithKey.
//
// # Bodies
//
// The bytes of all tries are the same. They come from the request's GetBody, which [http.NewRequest] sets for bodies in
// memory. A body without GetBody is read into memory before the first try if it has at most 1 MiB; a longer one is sent
// once. A body that depends on the response (a conversation over one request) must not go through a Transport.
//
// net/http sends a request with an Idempotency-Key again by itself if a connection that was kept alive breaks. For
// requests with a body this is switched off: each try is one of the Transport's. For those without one it is counted.
//
// # Signatures
//
// As the Base of a Transport, a [github.com/idem-go/idem/sign.Transport] signs each try anew. The other way round does not
// work: all tries would have one signature.
//
//	client := &http.Client{Transport: &idemclient.Transport{Hosts: hosts, Base: &sign.Transport{Key: key}}}
package idemclient
