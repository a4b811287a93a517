// Package valkeyidem lets a service that uses valkey-go keep records by the client that it has:
//
//	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"127.0.0.1:6379"}, PipelineMultiplex: -1})
//	if err != nil {
//		return err
//	}
//	s := valkeyidem.New(client, redisstore.Config{})
//
// The store is that of package redisstore, with the same records: processes with this client, with rueidis and with go-redis can share
// a server. The server may be Valkey or Redis.
//
// valkey-go has the options of rueidis, from which it was forked, and they do and cost the same. They are in the documentation of
// redisstore, under Clients.
package valkeyidem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idem/core/store/redisstore"
)

// New returns a store that uses client, which remains the caller's: Close does not close it. It panics if client is nil, or if c has a
// fault. The client may be one for a single server, for Sentinel or for a cluster. It must not send the store's commands to replicas
// (SendToReplicas). New does not wait for the server.
func New(client valkey.Client, c redisstore.Config) *redisstore.Store {
	if client == nil {
		panic("valkeyidem: New was given no client")
	}
	return redisstore.NewWithClient(on{client}, c)
}

// on is a redisstore.CachingClient on one of valkey-go.
type on struct{ valkey.Client }

// built are commands as valkey-go takes them. They are pooled, unless a server has not replied: valkey-go may still hold them.
var built = sync.Pool{New: func() any { return new([]valkey.Completed) }}

// Do implements redisstore.Client.
func (c on) Do(ctx context.Context, commands []redisstore.Command) {
	b := c.B()
	build := func(words []string, key int) valkey.Completed {
		if key == 0 { // arbitrary commands count as writes: valkey-go sends none twice, nor to a replica
			return b.Arbitrary(words...).Build()
		}
		return b.Arbitrary(words[:key]...).Keys(words[key]).Args(words[key+1:]...).Build()
	}
	if len(commands) == 1 {
		commands[0].Reply = replyOf(c.Client.Do(ctx, build(commands[0].Args, commands[0].Key)))
		return
	}
	all := built.Get().(*[]valkey.Completed)
	*all = (*all)[:0]
	for i := range commands {
		*all = append(*all, build(commands[i].Args, commands[i].Key))
	}
	replied := true
	for i, result := range c.DoMulti(ctx, *all...) {
		commands[i].Reply = replyOf(result)
		replied = replied && result.NonValkeyError() == nil
	}
	if replied {
		clear(*all)
		built.Put(all)
	}
}

func replyOf(result valkey.ValkeyResult) redisstore.Reply {
	message, err := result.ToMessage()
	if err != nil {
		return redisstore.Reply{Err: errorOf(err)}
	}
	return messageOf(message)
}

func errorOf(err error) error {
	if valkey.IsValkeyNil(err) {
		return redisstore.ErrNil
	}
	if refusal, is := valkey.IsValkeyErr(err); is {
		return redisstore.ServerError(refusal.Error())
	}
	return err
}

func messageOf(message valkey.ValkeyMessage) (r redisstore.Reply) {
	switch {
	case message.Error() != nil:
		r.Err = errorOf(message.Error())
	case message.IsInt64():
		r.Number, r.Err = message.AsInt64()
	case message.IsArray():
		var parts []valkey.ValkeyMessage
		parts, r.Err = message.ToArray()
		for _, part := range parts {
			r.Parts = append(r.Parts, messageOf(part))
		}
	default:
		r.Text, r.Err = message.ToString()
	}
	return r
}

// Nodes implements redisstore.Client.
func (c on) Nodes(context.Context) (map[string]redisstore.Client, error) {
	nodes := map[string]redisstore.Client{}
	for addr, node := range c.Client.Nodes() {
		nodes[addr] = on{node}
	}
	return nodes, nil
}

// Subscribe implements redisstore.Client.
func (c on) Subscribe(ctx context.Context, channel string, confirmed func(), received func(message string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hooked := valkey.WithOnSubscriptionHook(ctx, func(e valkey.PubSubSubscription) {
		if e.Kind == "subscribe" {
			confirmed()
		}
	})
	// When a subscription breaks, valkey-go would subscribe again by itself. It does not once the context has ended.
	hooked = valkey.WithOnReceiveReturnHook(hooked, func(err error, _ valkey.CommandClient) error {
		cancel()
		return err
	})
	// On a connection of its own: Redis bounds the output buffer of a subscribed connection, and
	// closes it, with all answers that are on their way.
	conn, release := c.Dedicate()
	defer release()
	return conn.Receive(hooked, conn.B().Subscribe().Channel(channel).Build(), func(m valkey.PubSubMessage) { received(m.Message) })
}

// OneServer implements redisstore.Client.
func (c on) OneServer() bool {
	return c.Mode() != valkey.ClientModeCluster && !followsRedirections(c.Client)
}

// followsRedirections reports whether client is one of valkey-go's with options for Standalone, which may have it follow
// redirections: it sends a batch again as a whole then, including what the server has carried out already. Nothing but the
// name of its type tells; a client that wraps another one is not known.
func followsRedirections(client valkey.Client) bool {
	return fmt.Sprintf("%T", client) == "*valkey.standalone"
}

// GetCached implements redisstore.CachingClient.
func (c on) GetCached(ctx context.Context, key string, ttl time.Duration) (r redisstore.Reply, cached bool) {
	result := c.DoCache(ctx, c.B().Get().Key(key).Cache(), ttl)
	r = replyOf(result)
	// The user may lack a permission that the cache needs.
	_, refused := r.Err.(redisstore.ServerError)
	if refused || errors.Is(r.Err, valkey.ErrDoCacheAborted) {
		return r, false
	}
	return r, r.Err != nil || result.CachePTTL() >= 0
}
