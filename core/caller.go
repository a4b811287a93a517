package core

import (
	"context"
	"net/url"
)

// WithCaller returns a context that says who sends the request: id, whom a middleware in
// front has authenticated (by a signature, see package sign: the adapters' Verify sets the
// key id). A guard behind it takes the caller for its user, see [Config].User. id is kept,
// so that it must not share memory that is used again. An empty id says nothing.
func WithCaller(ctx context.Context, id string) context.Context {
	return &callerContext{ctx, id}
}

// CallerFrom returns the caller whom a middleware in front has authenticated, if any.
func CallerFrom(ctx context.Context) (id string, ok bool) {
	c, _ := ctx.Value(callerKey{}).(*callerContext)
	if c == nil {
		return "", false
	}
	return c.id, c.id != ""
}

type callerKey struct{}

// callerContext is its own value: one allocation.
type callerContext struct {
	context.Context
	id string
}

func (c *callerContext) Value(key any) any {
	if _, ok := key.(callerKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// NotReached tells the guards around, if there are any, that a middleware behind them has
// refused the request to which ctx belongs, so that its handler is not reached: they forget
// the request, and the next try runs. The adapters' Verify says so. It has to be called
// before the guards' handler returns.
func NotReached(ctx context.Context) {
	for r, _ := RunFrom(ctx); r != nil; r = r.outer {
		r.refused.Store(true)
	}
}

// UserFromCaller takes the caller whom a middleware in front has authenticated
// ([WithCaller]) as the user, and nothing else. A request without one is refused, also where the key
// is optional and missing: that middleware must have been forgotten. It is
// what to set as [Config].User for an engine all of whose routes are signed.
func UserFromCaller() UserSource {
	return UserSource{
		find: func(r *Request) (User, error) {
			if r.Caller == "" {
				return User{}, ErrNoUser
			}
			return verified(r.Caller), nil
		},
		refine: nobody,
		caller: true,
	}
}

// The marks of the user parts of verified callers. No other source has one that begins like
// them.
const (
	sourceCaller  = "caller"
	sourceRefined = "caller&"
)

func verified(caller string) User { return User{ID: caller, source: sourceCaller} }

// refined is the user u of a caller. A blank, which is escaped in the caller, stands between
// the two.
func refined(caller string, u User) User {
	return User{ID: url.QueryEscape(caller) + " " + u.ID, Credential: u.Credential, source: sourceRefined + u.source}
}

// nobody is what a source finds that has nothing to add to a verified caller.
func nobody(*Request) (User, error) { return User{}, ErrNoUser }
