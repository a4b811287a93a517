package core

import (
	"context"
	"net/url"
)

// WithCaller returns a context that says who sends the request: id, whom a middleware in
// front has authenticated (by a signature, see package sign: the adapters' Verify sets the
// key's owner). A guard behind it takes the caller for its user, see [Config].User. An empty id says
// nothing. consumed are the names of parameters, at the top level of query, form and JSON, that
// have been used up by that: they do not count for keys and fingerprints, for a retry is signed
// anew. The strings are kept, so that they must not share memory that is used again.
func WithCaller(ctx context.Context, id string, consumed ...string) context.Context {
	return WithCallerEvent(ctx, id, "", consumed...)
}

// WithCallerEvent is [WithCaller] for a request that reports an event: event is the id that it has in all
// its deliveries (sign.Verified.EventID), for [CallerEvent]. An empty one says nothing. It must be as
// authentic as the caller: made of what the caller has signed, not of a header field that anybody can change.
func WithCallerEvent(ctx context.Context, id, event string, consumed ...string) context.Context {
	return &callerContext{ctx, id, event, consumed}
}

// CallerFrom returns the caller whom a middleware in front has authenticated, if any.
func CallerFrom(ctx context.Context) (id string, ok bool) {
	id, _, _ = callerFrom(ctx)
	return id, id != ""
}

func callerFrom(ctx context.Context) (id, event string, consumed []string) {
	c, _ := ctx.Value(callerKey{}).(*callerContext)
	if c == nil {
		return "", "", nil
	}
	return c.id, c.event, c.consumed
}

type callerKey struct{}

// callerContext is its own value: one allocation.
type callerContext struct {
	context.Context
	id, event string
	consumed  []string
}

func (c *callerContext) Value(key any) any {
	if _, ok := key.(callerKey); ok {
		return c
	}
	return c.Context.Value(key)
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
