// Package idemclient sends each request until it has an answer, under one idempotency key, so that each operation happens once. It
// is for clients of services that accept an Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): those guarded by this module,
// and others. It needs only the standard library.
//
//	client := &http.Client{Transport: &idemclient.Transport{Hosts: []string{"api.example.com"}}}
//	resp, err := client.Post("https://api.example.com/payments", "application/json", body)
//
// A nil error means that the response is the operation's answer. An [*Error] means that there is no answer yet. It has the key under
// which the caller may continue.
//
// # What it does
//
//   - It tries again, with the same key and the same bytes, after a connection error, after the time limit of one try
//     ([Transport.TryTimeout]), after 408, 425, 429, 502, 503 and 504, and after the refusals store_unavailable, shutting_down,
//     unfinished and rate_limited with any status.
//   - It waits as Retry-After says, and asks again until the operation has an answer, after the refusal in_progress with any status,
//     and after a 409 whose JSON has the code idempotency_in_flight or idempotency_key_in_use. This counts neither as a try nor in
//     the budget. Limit it with the request's context.
//   - It returns any other answer, such as 400, 401, 403, 409, 413, 422 and 500. Many services replay a 500. For those that do not,
//     set [Transport.Retry500] to have it tried again.
//   - It returns an [*Error] at once if Retry-After is beyond [Transport.MaxWait] or the context's deadline, if no tries or no budget
//     are left, or if the context ends. The error has the last response, because net/http drops a response that comes with an error.
//   - It sends nothing more after [Transport.KeyLifetime], or after the Idempotency-Key-Expires of an answer. The service may have
//     forgotten the key, so the operation could happen twice: [ErrOutcomeUnknown].
//
// An answer with a Content-Length of up to 64 KiB is read before it is returned. So are the first 64 KiB of JSON without a
// Content-Length. If such an answer breaks off, that counts as a connection error. If a longer answer or a stream breaks off, the
// caller can continue with the Idempotency-Key in the Header of the response's Request.
//
// # Keys
//
// Each request that is not safe gets an Idempotency-Key: POST, PUT, PATCH, DELETE, and every other method that is not safe by RFC 9110
// or RFC 10008. The key is the one in the request's own field, or that of [WithKey], or a new one of 128 random bits. It is the same in
// all tries, and in redirects to guarded hosts that keep the method (307, 308). Redirects that change the method (301, 302, 303) are
// followed once, without a key. A redirect to a host that is not guarded does not get the key. GET, HEAD, OPTIONS, TRACE and QUERY get
// no key, and are retried like other requests.
//
// One request is one operation. A loop that sends a request again after an error needs WithKey; otherwise each round is a new
// operation. A key that exists only in this process is lost with it. If an operation must not happen twice after a crash, store a key
// before the first try and use WithKey.
//
// # Bodies
//
// The bytes of all tries are the same. They come from the request's GetBody, which [http.NewRequest] sets for bodies in memory. A body
// without GetBody is read into memory before the first try if it has at most 1 MiB. A longer one is sent once. Do not send a body
// through a Transport if it depends on the response (a conversation over one request).
//
// net/http itself repeats a request with an Idempotency-Key if a kept-alive connection breaks. For requests with a body the Transport
// prevents this, so that each try is its own. For requests without one, it counts what net/http repeats.
//
// # Signatures
//
// With a [github.com/idem-go/idem/sign.Transport] as its Base, a Transport signs each try again. The reverse does not work: all tries
// would have the same signature.
//
//	client := &http.Client{Transport: &idemclient.Transport{Hosts: hosts, Base: &sign.Transport{Key: key}}}
package idemclient
