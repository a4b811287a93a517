package shop

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	"golang.org/x/time/rate"

	"github.com/idem-go/idem/core"
)

// perUser allows each user n at once, and then one each window/n, in this process.
func perUser(n int, window time.Duration) func(context.Context, core.User) (time.Duration, error) {
	var mu sync.Mutex
	recent, older := map[string]*rate.Limiter{}, map[string]*rate.Limiter{}
	began := time.Now() // of recent
	return func(_ context.Context, user core.User) (time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if now.Sub(began) >= window { // who has not asked for a window has all n again, and is forgotten
			recent, older, began = map[string]*rate.Limiter{}, recent, now
		}
		limiter := cmp.Or(recent[user.ID], older[user.ID])
		if limiter == nil {
			limiter = rate.NewLimiter(rate.Every(window/time.Duration(n)), n)
		}
		recent[user.ID] = limiter
		reserved := limiter.ReserveN(now, 1)
		retryAfter := reserved.DelayFrom(now)
		if retryAfter > 0 {
			reserved.CancelAt(now) // a refused call takes nothing
		}
		return retryAfter, nil
	}
}

// perUserOnRedis allows each user n in a window, in all processes that use the server and the name.
func perUserOnRedis(client rueidis.Client, name string, n int,
	window time.Duration) (func(context.Context, core.User) (time.Duration, error), error) {
	limiter, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientBuilder: func(rueidis.ClientOption) (rueidis.Client, error) { return client, nil },
		KeyPrefix:     name,
		Limit:         n,
		Window:        window,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, user core.User) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		result, err := limiter.Allow(ctx, user.ID)
		if err != nil || result.Allowed {
			return 0, err
		}
		return max(time.Until(time.UnixMilli(result.ResetAtMs)), 1), nil // zero would allow it
	}, nil
}
