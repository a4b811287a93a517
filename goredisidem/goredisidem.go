// Package goredisidem lets a service that uses go-redis keep records in Redis by the client that it has:
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}})
//	s, err := goredisidem.New(client, redisstore.Config{})
//
// The store is that of package redisstore, with the same records: processes with this client and with rueidis can share a
// server. It has no cache in the process: [redisstore.Config].ClientSideCache has no effect.
//
// # Settings of the client
//
// The store's commands go through the client's hooks and pool, and count in its metrics.
//
//   - MaxRetries does not hold for them: each is sent once. A retry after a lost answer would meet with what the first try did.
//   - ReadTimeout (3 s by default, in newer versions 5 s) is how long an answer may take. Callers wait no longer than their own contexts
//     say; their deadlines break no connection, whatever ContextTimeoutEnabled says.
//   - A hook sees the commands that are sent together as one pipeline. One argument of a command is a fmt.Stringer in place of a
//     string: it counts how often the command is sent. So a hook that calls next more than once is noticed, and the store takes the
//     answers for repeated.
//   - ReadOnly, RouteByLatency and RouteRandomly do not matter: what the store sends goes to masters.
//   - Each waiting process holds one connection beyond the pool, for the subscription on which waiters are woken.
package goredisidem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/core/store/redisstore"
)

// New returns a store that uses client, which remains the caller's: Close does not close it. The client is a *redis.Client, also one
// for Sentinel, or a *redis.ClusterClient. Any other one is an error, a ring in particular: its servers do not know of each other,
// and one that is away makes another one answer for its keys. So is a fault of c. New does not wait for a server.
func New(client redis.UniversalClient, c redisstore.Config) (*redisstore.Store, error) {
	switch client := client.(type) {
	case *redis.Client:
		if client == nil {
			return nil, errClient
		}
	case *redis.ClusterClient:
		if client == nil {
			return nil, errClient
		}
		if c.WaitForReplicas > 0 {
			return nil, errors.New("goredisidem: Config.WaitForReplicas needs a client of one server or of Sentinel")
		}
	default:
		return nil, fmt.Errorf("%w, not %T", errClient, client)
	}
	return redisstore.NewWithClient(on{client}, c), nil
}

var errClient = errors.New("goredisidem: New takes a *redis.Client or a *redis.ClusterClient")

// on is a redisstore.Client on one of go-redis.
type on struct{ redis.UniversalClient }

// command is a command that go-redis does not retry.
type command struct {
	*redis.Cmd
	counted word
}

// NoRetry overrides what redis.Cmd says.
func (*command) NoRetry() bool { return true }

// word is an argument of a command that counts how often it is sent: the client's hooks may do so twice. (A hook of our own would see
// that, too, but to add one to a client that others use already is a data race.)
type word struct {
	text string
	sent int
}

// MarshalBinary is called each time the command is written to a connection.
func (w *word) MarshalBinary() ([]byte, error) {
	w.sent++
	return []byte(w.text), nil
}

// String is what hooks print, and go-redis reads.
func (w *word) String() string { return w.text }

// Do implements redisstore.Client.
func (c on) Do(ctx context.Context, commands []redisstore.Command) {
	all := make([]command, len(commands))
	cmders := make([]redis.Cmder, len(commands))
	counted := false
	for i, do := range commands {
		args := make([]any, len(do.Args))
		for j, text := range do.Args {
			args[j] = text
		}
		// go-redis wants keys as strings, and hooks may want names so. What is sent with others is counted with them.
		at := len(args) - 1
		if at == do.Key {
			at = 0
		}
		if at > 0 || i == len(commands)-1 && !counted {
			counted = true
			all[i].counted.text = do.Args[at]
			args[at] = &all[i].counted
		}
		all[i].Cmd = redis.NewCmd(ctx, args...)
		all[i].SetFirstKeyPos(int8(do.Key))
		cmders[i] = &all[i]
	}
	if len(all) == 1 {
		_ = c.Process(ctx, &all[0])
	} else {
		pipe := c.Pipeline()
		_ = pipe.BatchProcess(ctx, cmders...)
		_, _ = pipe.Exec(ctx)
	}
	repeated := false
	for i := range all {
		commands[i].Reply = replyOf(all[i].Result())
		repeated = repeated || all[i].counted.sent > 1
	}
	for i := range commands {
		commands[i].Repeated = repeated
	}
}

// replyOf returns what go-redis has read.
func replyOf(value any, err error) (r redisstore.Reply) {
	var refusal redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		r.Err = redisstore.ErrNil
	case errors.As(err, &refusal):
		r.Err = redisstore.ServerError(refusal.Error())
	case err != nil:
		r.Err = err
	}
	switch value := value.(type) {
	case string:
		r.Text = value
	case int64:
		r.Number = value
	case error: // in an array
		return replyOf(nil, value)
	case []any:
		r.Parts = make([]redisstore.Reply, len(value))
		for i, part := range value {
			if part == nil {
				part = error(redis.Nil)
			}
			r.Parts[i] = replyOf(part, nil)
		}
	}
	return r
}

// Nodes implements redisstore.Client.
func (c on) Nodes(ctx context.Context) (map[string]redisstore.Client, error) {
	nodes := map[string]redisstore.Client{}
	switch client := c.UniversalClient.(type) {
	case *redis.Client:
		nodes[client.Options().Addr] = c
	case *redis.ClusterClient:
		var mu sync.Mutex // ForEachMaster calls for all at once
		err := client.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes[master.Options().Addr] = on{master}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// OneServer implements redisstore.Client.
func (c on) OneServer() bool {
	_, is := c.UniversalClient.(*redis.Client)
	return is
}

// silence is how long a subscription may be silent before the server is asked whether it is there, and then before it is taken to be gone.
const silence = 2 * time.Second

var errAnew = errors.New("goredisidem: the subscription has been made anew")

// Subscribe implements redisstore.Client.
func (c on) Subscribe(ctx context.Context, channel string, confirmed func(), received func(message string)) error {
	ctx, cancel := context.WithCancel(ctx)
	subscription := c.UniversalClient.Subscribe(ctx, channel)
	heard := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer func() { _ = subscription.Close() }() // which ends Receive
		for asked := false; ; {
			select {
			case <-ctx.Done():
				return
			case <-heard:
				asked = false
			case <-time.After(silence):
				if asked || subscription.Ping(ctx) != nil {
					return
				}
				asked = true
			}
		}
	})
	defer watching.Wait()
	defer cancel()
	for subscribed := false; ; {
		// After an error, go-redis subscribes anew by itself: so the first one is the end.
		message, err := subscription.Receive(ctx)
		if err != nil {
			return err
		}
		select {
		case heard <- struct{}{}:
		default:
		}
		switch message := message.(type) {
		case *redis.Subscription:
			if subscribed {
				return errAnew
			}
			subscribed = true
			confirmed()
		case *redis.Message:
			received(message.Payload)
		}
	}
}
