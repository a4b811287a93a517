package adapterkit

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// UserFrom takes the user from what value finds under key in the framework's own context, see
// [UserFromValue]. framework is the framework's name, for the error of a request that comes from
// another one. If value finds nil, the error is that of [core.NoUserUnder].
func UserFrom[C any](framework string, key any, value func(C) any) core.UserSource {
	empty := core.NoUserUnder(key)
	return core.UserFunc(func(r *adapter.Request) (core.User, error) {
		c, ok := r.Native.(C)
		if !ok {
			return core.User{}, fmt.Errorf("idem: the user source is for requests of %s, but this request, a %T, does not come from %[1]s",
				framework, r.Native)
		}
		u, err := UserFromValue(value(c))
		if err == core.ErrNoUser {
			err = empty
		}
		return u, err
	})
}

// NewToken issues a token of g for the caller of the exchange's request, see [core.Guard.NewToken].
func NewToken(ctx context.Context, x adapter.Exchange, g *core.Guard) (string, error) {
	r := adapter.Request{Headers: x}
	x.Describe(&r)
	return g.NewToken(ctx, &r)
}
