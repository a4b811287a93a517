package redisstore

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// SendsTogether reports whether a store on client sends the commands of concurrent callers together.
func SendsTogether(client rueidis.Client) bool { return (rueidisClient{client}).OneServer() }

// Rueidis is the Client that [New] makes of client.
func Rueidis(client rueidis.Client) Client { return rueidisClient{client} }

// AwaitNative waits until the store knows that its server compares by itself.
func AwaitNative(tb testing.TB, s *Store) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !s.natives.set.works.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("the store does not know it")
		}
	}
}

// TryNative makes a store try the commands that its server has refused, as it does a minute later.
func TryNative(s *Store) {
	for _, t := range s.natives.all() {
		t.next.Store(0)
	}
}

// What a store finds out at its start is waited for, however slow the machine is.
func init() { startupTimeout = time.Minute }
