package core

import (
	"context"
	"fmt"
	"net/url"
)

// WithCaller returns a context with a verified caller: id is the sender of the request, as an outer middleware has authenticated
// it. (The adapters' Verify sets the owner of the signing key, see package sign.) A guard inside it takes the caller for the user,
// see [Config].User. An empty id means no caller.
//
// consumed are the names of parameters, at the top level of query, form and JSON, that belong to the authentication. They do not
// count for keys and fingerprints, because a retry is signed anew. The strings are kept: they must not share memory that is reused.
func WithCaller(ctx context.Context, id string, consumed ...string) context.Context {
	return WithCallerEvent(ctx, id, "", consumed...)
}

// WithCallerEvent is [WithCaller] for a request that reports an event, for [CallerEvent]. event is the id that the event has in all
// its deliveries (sign.Verified.EventID). An empty event means no event. It must be as authentic as the caller: taken from what the
// caller has signed, not from an unsigned header field.
func WithCallerEvent(ctx context.Context, id, event string, consumed ...string) context.Context {
	return &callerContext{ctx, id, event, consumed}
}

// CallerFrom returns the verified caller of [WithCaller]. ok is false if there is none.
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

// UserFromCaller takes the verified caller ([WithCaller]) as the user, and nothing else. A request without one is refused, even if
// its key is optional and missing: such a request has bypassed the verification. Set UserFromCaller as [Config].User if all routes
// of an engine are signed.
func UserFromCaller() UserSource {
	return UserSource{
		find: func(r *Request) (User, error) {
			if r.Caller == "" {
				return User{}, errNoCaller
			}
			return verified(r.Caller), nil
		},
		refine: noUser,
		caller: true,
	}
}

var errNoCaller = fmt.Errorf("%w: nothing has verified its caller; Verify, or what else does, goes outside the guard", ErrNoUser)

// The marks of the user parts of verified callers. No other source has a mark that begins like them.
const (
	sourceCaller  = "caller"
	sourceRefined = "caller&"
)

func verified(caller string) User { return User{ID: caller, source: sourceCaller} }

// refined is the user u of a caller. A blank, which is escaped in the caller, is between
// the two.
func refined(caller string, u User) User {
	return User{ID: url.QueryEscape(caller) + " " + u.ID, Credential: u.Credential, source: sourceRefined + u.source}
}

// noUser is the refine function of sources that add nothing to a verified caller.
func noUser(*Request) (User, error) { return User{}, ErrNoUser }
