package core

import (
	"context"
	"time"
)

// Limiter says whether one more may happen now, for a key: a user, say. It is a token bucket of n
// in a window for each key: n at once, and then one each window/n. The rules that every limiter
// keeps (storetest.RunLimiter checks them):
//
//   - The bucket of a key that was never asked for is full: it holds n. What is allowed takes one
//     out, and each window/n one comes back, until there are n.
//   - Keys are exact: two keys are one only if their bytes are equal. Every string is a key, the
//     empty one, too. A limiter keeps nothing of the string: its memory may be used again when Allow
//     has returned.
//   - Of any number of calls at once, by all who share the counts, as many are allowed as the
//     bucket holds.
//   - A refused call counts nothing, however often it is made.
//   - Time is the limiter's own: that of the process, or of the server that it counts on.
//   - A context that has ended is its error, and counts nothing.
//   - What is known of a key whose bucket is full again is forgotten, at the latest as other keys are
//     asked for.
//
// core/limit counts in the process, redisstore.NewLimiter across processes.
type Limiter interface {
	// Allow asks for one more now, for key.
	//
	//   - A wait of zero: it may happen, and has been counted.
	//   - More than zero: it may not, and nothing was counted. After wait one comes back, and is
	//     the first caller's. It is never longer than window/n, but for up to a millisecond of
	//     rounding.
	//   - An error: it is not known whether it may, nor whether it was counted. Who can't know
	//     must not go on: the function Allow refuses with 503 [CodeStoreUnavailable].
	//
	// It is safe for concurrent use.
	Allow(ctx context.Context, key string) (wait time.Duration, err error)
}

// Allow asks limiter for one more, for key. It returns nil if it may happen now. Every other answer
// is a *[Refusal]: [CodeRateLimited], whose RetryAfter is when one more may; or, if the limiter can't know,
// [CodeStoreUnavailable] with the limiter's error behind it. A handler or middleware answers it as it answers
// all refusals ([RefusalResponse], httpidem.Refuse):
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
