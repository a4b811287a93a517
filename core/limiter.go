package core

import (
	"context"
	"time"
)

// Limiter limits how often something happens for a key, such as a user. Each key has a token bucket for n
// calls in a window: n calls at once, and then one each window/n. Every limiter keeps these rules
// (storetest.RunLimiter checks them):
//
//   - The bucket of a new key is full: it holds n tokens. An allowed call takes one out, and each
//     window/n one comes back, until there are n.
//   - Keys are exact: two keys are equal only if their bytes are. Every string is a key, also the
//     empty one. A limiter does not keep the string, whose memory may be reused when Allow has
//     returned.
//   - Of any number of concurrent calls, from all processes that share the limiter's counts, as many are
//     allowed as the bucket holds tokens.
//   - A refused call takes nothing.
//   - Time is that of the limiter's own clock: of the process, or of the server that keeps the counts.
//   - If the context has ended, Allow returns its error and takes nothing.
//   - A key whose bucket is full again is forgotten, at the latest when other keys are used.
//
// core/limit counts in the process, redisstore.NewLimiter across processes.
type Limiter interface {
	// Allow takes a token out of the bucket of key.
	//
	//   - A wait of zero: the call is allowed.
	//   - A wait of more than zero: the call is refused. After wait one token comes back, for the
	//     first caller that takes it. A wait is at most window/n, and up to a millisecond of rounding.
	//   - An error: it is not known whether a token was taken. The caller must not go on: the function
	//     Allow refuses with 503 [CodeStoreUnavailable].
	//
	// It is safe for concurrent use.
	Allow(ctx context.Context, key string) (wait time.Duration, err error)
}

// Allow calls limiter for key. It returns nil if the call is allowed, else a *[Refusal]:
// [CodeRateLimited] with RetryAfter, or [CodeStoreUnavailable] with the limiter's error behind it. Answer
// it like every refusal ([RefusalResponse], httpidem.Refuse):
//
//	if err := core.Allow(r.Context(), limiter, user); err != nil {
//		httpidem.Refuse(w, r, err)
//		return
//	}
func Allow(ctx context.Context, limiter Limiter, key string) error {
	wait, err := limiter.Allow(ctx, key)
	switch {
	case err != nil:
		r := NewRefusal(CodeStoreUnavailable, err)
		r.Detail = "Nothing was carried out, because it is not known whether this has been asked for too often."
		return r
	case wait > 0:
		r := NewRefusal(CodeRateLimited, nil)
		r.RetryAfter = wait
		return r
	}
	return nil
}
