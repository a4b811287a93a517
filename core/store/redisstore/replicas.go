package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/rueidis"
)

var errCluster = errors.New("redisstore: Config.WaitForReplicas needs a client of one server or of Sentinel: a cluster's, or one that " +
	"follows redirections, may send a write and its WAIT to two servers")

// replicated is a client that sends a WAIT after commands, on the same connection.
type replicated struct {
	rueidis.Client
	n    int
	wait []string // the arguments of WAIT
}

func (r *replicated) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	// An arbitrary command: the client sends what it knows to block on other connections, where it does not
	// notice a server that is frozen.
	wait := r.B().Arbitrary("WAIT").Args(r.wait...).Build()
	results := r.Client.DoMulti(ctx, append(slices.Clip(commands), wait)...)
	last := len(commands)
	n, err := results[last].AsInt64()
	if err == nil && n < int64(r.n) {
		err = fmt.Errorf("%d of %d have acknowledged it in time", n, r.n)
	}
	for i, result := range results[:last] {
		if _, refused := rueidis.IsRedisErr(result.Error()); err != nil && !refused && result.NonRedisError() == nil {
			results[i] = rueidis.NewErrorResult(&unconfirmed{result, err})
		}
	}
	return results[:last]
}

// unconfirmed is the error in place of an answer that too few replicas stand behind.
type unconfirmed struct {
	answer rueidis.RedisResult
	cause  error
}

func (u *unconfirmed) Error() string {
	return "waiting for replicas to have the write: " + u.cause.Error()
}

// confirmed returns the server's answer, and an error if too few replicas stand behind it.
func confirmed(result rueidis.RedisResult) (rueidis.RedisResult, error) {
	if u, is := result.NonRedisError().(*unconfirmed); is {
		return u.answer, u
	}
	return result, nil
}
