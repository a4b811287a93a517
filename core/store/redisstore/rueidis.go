package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// rueidisClient is a Client on one of rueidis.
type rueidisClient struct{ rueidis.Client }

// built are commands as rueidis takes them. They are pooled, unless a server has not replied: rueidis may still hold them.
var built = sync.Pool{New: func() any { return new([]rueidis.Completed) }}

func (c rueidisClient) Do(ctx context.Context, commands []Command) {
	b := c.B()
	build := func(words []string, key int) rueidis.Completed {
		if key == 0 { // arbitrary commands count as writes: rueidis sends none twice, nor to a replica
			return b.Arbitrary(words...).Build()
		}
		return b.Arbitrary(words[:key]...).Keys(words[key]).Args(words[key+1:]...).Build()
	}
	if len(commands) == 1 {
		commands[0].Reply = replyOf(c.Client.Do(ctx, build(commands[0].Args, commands[0].Key)))
		return
	}
	all := built.Get().(*[]rueidis.Completed)
	*all = (*all)[:0]
	for i := range commands {
		*all = append(*all, build(commands[i].Args, commands[i].Key))
	}
	replied := true
	for i, result := range c.DoMulti(ctx, *all...) {
		commands[i].Reply = replyOf(result)
		replied = replied && result.NonRedisError() == nil
	}
	if replied {
		clear(*all)
		built.Put(all)
	}
}

func replyOf(result rueidis.RedisResult) Reply {
	message, err := result.ToMessage()
	if err != nil {
		return Reply{Err: errorOf(err)}
	}
	return messageOf(message)
}

func errorOf(err error) error {
	if rueidis.IsRedisNil(err) {
		return ErrNil
	}
	if refusal, is := rueidis.IsRedisErr(err); is {
		return ServerError(refusal.Error())
	}
	return err
}

func messageOf(message rueidis.RedisMessage) (r Reply) {
	switch {
	case message.Error() != nil:
		r.Err = errorOf(message.Error())
	case message.IsInt64():
		r.Number, r.Err = message.AsInt64()
	case message.IsArray():
		var parts []rueidis.RedisMessage
		parts, r.Err = message.ToArray()
		for _, part := range parts {
			r.Parts = append(r.Parts, messageOf(part))
		}
	default:
		r.Text, r.Err = message.ToString()
	}
	return r
}

func (c rueidisClient) Nodes(context.Context) (map[string]Client, error) {
	nodes := map[string]Client{}
	for addr, node := range c.Client.Nodes() {
		nodes[addr] = rueidisClient{node}
	}
	return nodes, nil
}

func (c rueidisClient) Subscribe(ctx context.Context, channel string, confirmed func(), received func(message string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(e rueidis.PubSubSubscription) {
		if e.Kind == "subscribe" {
			confirmed()
		}
	})
	// When a subscription breaks, rueidis would subscribe again by itself. It does not once the context has ended.
	hooked = rueidis.WithOnReceiveReturnHook(hooked, func(err error, _ rueidis.CommandClient) error {
		cancel()
		return err
	})
	// On a connection of its own: Redis bounds the output buffer of a subscribed connection, and
	// closes it, with all answers that are on their way.
	conn, release := c.Dedicate()
	defer release()
	return conn.Receive(hooked, conn.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { received(m.Message) })
}

func (c rueidisClient) OneServer() bool {
	return c.Mode() != rueidis.ClientModeCluster && !followsRedirections(c.Client)
}

// followsRedirections reports whether client is one of rueidis' with options for Standalone, which may have it follow
// redirections: it sends a batch again as a whole then, including what the server has carried out already. Nothing but the
// name of its type tells; a client that wraps another one is not known.
func followsRedirections(client rueidis.Client) bool {
	return fmt.Sprintf("%T", client) == "*rueidis.standalone"
}

func (c rueidisClient) GetCached(ctx context.Context, key string, ttl time.Duration) (r Reply, cached bool) {
	result := c.DoCache(ctx, c.B().Get().Key(key).Cache(), ttl)
	r = replyOf(result)
	// The user may lack a permission that the cache needs.
	if isServerError(r.Err) || errors.Is(r.Err, rueidis.ErrDoCacheAborted) {
		return r, false
	}
	return r, r.Err != nil || result.CachePTTL() >= 0
}
