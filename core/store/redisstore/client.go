package redisstore

import (
	"context"
	"errors"
	"time"
)

// Client is what a Store needs of a client of Redis. A service that has a client of its own gives it to the store, wrapped as a
// Client by an adapter package. So it has neither a second set of connections nor a second configuration. [New] is for rueidis.
// Methods are called by many goroutines at once.
type Client interface {
	// Do sends commands and puts a Reply into each. It sends them in their order on one connection, to the server that has
	// the key of the first: the others have that key, too, or none. If OneServer returns true, their keys may differ.
	//
	// It sends no command a second time, unless the server has replied that another one has the key, or is about to. If it
	// can't be kept from that, it says so in Reply.Repeated.
	//
	// The Args belong to the caller again when Do returns. Do may wait for as long as a connection does not answer. The end
	// of ctx may end the wait, but must not break a connection that others use.
	Do(ctx context.Context, commands []Command)

	// Nodes returns a client for each server, by its address. At least the masters must be there.
	Nodes(ctx context.Context) (map[string]Client, error)

	// Subscribe subscribes to a channel on a connection on which nothing else waits for an answer. It calls confirmed once,
	// when the server has confirmed that, and then received with each message. It returns when ctx ends, and when the
	// connection does, even for a moment: it must not subscribe again by itself, for messages would be lost unnoticed.
	// The error says why it has returned. It does not matter once ctx has ended.
	Subscribe(ctx context.Context, channel string, confirmed func(), received func(message string)) error

	// OneServer reports whether all commands go to one server at a time, and a redirection is not followed. Then the
	// store sends the commands of concurrent callers together.
	OneServer() bool
}

// CachingClient is a [Client] with a cache in the process. The server tells the cache what has changed (CLIENT TRACKING).
type CachingClient interface {
	Client

	// GetCached returns the string under key, from the cache if it is there, or else from the server; then it stays in the cache for
	// at most ttl. cached reports whether the client has a cache at all, and the server lets it be used.
	GetCached(ctx context.Context, key string, ttl time.Duration) (reply Reply, cached bool)
}

// Command is a command, and what came of it.
type Command struct {
	Args []string // its name and its arguments
	Key  int      // where in Args the key is; zero: it has none
	Reply
}

// Reply is a server's reply to a command, or why there is none. One of Text, Number and Parts has it, by its type.
type Reply struct {
	Text   string  // of a string, simple or bulk
	Number int64   // of an integer
	Parts  []Reply // of an array
	// Err is ErrNil, a ServerError, or another error, after which it is not known whether the server has carried out the command.
	// None of the three is wrapped. It is the context's error if that ended the wait.
	Err error
	// Repeated says that the command may have been sent more than once.
	Repeated bool

	unconfirmed error // too few replicas stand behind it
}

// ErrNil is the Err of a Reply that is nil: there is nothing under the key, say.
var ErrNil = errors.New("redisstore: nil")

// ServerError is the Err of a Reply that is an error: its text, which begins with a code. ERR may be missing.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// isServerError reports whether a server has replied err.
func isServerError(err error) bool {
	_, is := err.(ServerError)
	return is
}
