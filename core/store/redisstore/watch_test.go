package redisstore_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

func watch(t *testing.T, s *redisstore.Store, key string) <-chan struct{} {
	t.Helper()
	changed, stop, err := s.Capabilities().Watch(t.Context(), key)
	require.NoError(t, err)
	t.Cleanup(stop)
	return changed
}

func woken(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatal("a waiter was not woken")
	}
}

func asleep(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
		t.Fatal("a waiter was woken by nothing")
	default:
	}
}

// subscribers returns how many connections are subscribed to the stores' channel.
func subscribers(t *testing.T, client rueidis.Client) int64 {
	t.Helper()
	n, err := client.Do(t.Context(), client.B().PubsubNumsub().Channel("idem:wake").Build()).AsIntMap()
	require.NoError(t, err)
	return n["idem:wake"]
}

// TestOneConnectionForAllWaiters: a connection for each waiter would overload a server that is slow already.
func TestOneConnectionForAllWaiters(t *testing.T) {
	server := backend.StartRedis(t)
	observer := openClient(t, server.URL())
	connections := func() int {
		list, err := observer.Do(t.Context(), observer.B().Arbitrary("CLIENT", "LIST").Build()).ToString()
		require.NoError(t, err)
		n := 0
		for _, c := range list {
			if c == '\n' {
				n++
			}
		}
		return n
	}
	s := openURL(t, server.URL(), redisstore.Config{})
	claims := map[string]store.Claim{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 100 { // all connections that the client makes are there
		wg.Go(func() {
			c := newClaim()
			_, err := s.Acquire(t.Context(), strconv.Itoa(i), c)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			claims[strconv.Itoa(i)] = c
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	none := connections()
	all := []<-chan struct{}{watch(t, s, "0")}
	one := connections()
	require.LessOrEqual(t, one, none+1)
	for i := range 999 {
		all = append(all, watch(t, s, strconv.Itoa(i%100)))
	}
	require.Equal(t, one, connections())
	require.EqualValues(t, 1, subscribers(t, observer))
	for _, changed := range all {
		asleep(t, changed)
	}
	for key, c := range claims {
		require.NoError(t, s.Complete(t.Context(), key, c.Owner, nil, time.Hour))
	}
	for _, changed := range all {
		woken(t, changed)
	}
}

// TestNobodyWaits: a run without waiters is not published, and one with waiters once.
func TestNobodyWaits(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	quiet, loud := begin(t, s, "quiet"), begin(t, s, "loud")
	changed := watch(t, s, "loud")
	published := func(key string, c store.Claim) int {
		return during(t, client, func() {
			require.NoError(t, s.Complete(t.Context(), key, c.Owner, nil, time.Hour))
		})["publish"]
	}
	require.Zero(t, published("quiet", quiet))
	asleep(t, changed)
	require.Equal(t, 1, published("loud", loud))
	woken(t, changed)
}

// TestBrokenSubscription: messages are lost while nobody listens. So all waiters look for themselves, and those that go on
// waiting subscribe again.
func TestBrokenSubscription(t *testing.T) {
	server := backend.StartRedis(t)
	link := backend.NewProxy(t, server.Addr())
	direct := openURL(t, server.URL(), redisstore.Config{})
	killer := openClient(t, server.URL())
	cut := func() { link.Cut(); link.Restore() }
	for name, interrupt := range map[string]func(){
		"?protocol=3": cut,
		"?protocol=2": cut, // messages come on a connection of their own
		"": func() { // that of others stands
			require.NoError(t, killer.Do(t.Context(), killer.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error())
		},
	} {
		s := openURL(t, link.URL(server.URL())+name, redisstore.Config{})
		key := "k" + name
		c := begin(t, s, key)
		changed := watch(t, s, key)
		asleep(t, changed)
		interrupt()
		woken(t, changed)
		require.Eventually(t, func() bool { // as soon as the client has a connection again
			again, stop, err := s.Capabilities().Watch(t.Context(), key)
			if err != nil {
				return false
			}
			t.Cleanup(stop)
			changed = again
			select {
			case <-changed:
				return false
			default:
				return true
			}
		}, 10*time.Second, time.Millisecond)
		require.NoError(t, direct.Complete(t.Context(), key, c.Owner, nil, time.Hour))
		woken(t, changed)
	}
}

// TestChannelIsForbidden: without permission for the channel only Watch fails. Other calls work, also on records that others watch.
func TestChannelIsForbidden(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	require.NoError(t, client.Do(t.Context(), client.B().Arbitrary("ACL", "SETUSER", "limited", "on", ">secret",
		"resetchannels", "~*", "+@all").Build()).Error())
	limited := openURL(t, "redis://limited:secret@"+server.Addr(), redisstore.Config{})
	completed, released, abandoned := begin(t, limited, "completed"), begin(t, limited, "released"), begin(t, limited, "abandoned")
	lapsing := newClaim()
	lapsing.Lease = time.Millisecond
	_, err := limited.Acquire(t.Context(), "taken", lapsing)
	require.NoError(t, err)
	time.Sleep(10 * time.Millisecond)

	_, _, err = limited.Capabilities().Watch(t.Context(), "completed")
	require.ErrorContains(t, err, "NOPERM")
	free := openURL(t, server.URL(), redisstore.Config{})
	for _, key := range []string{"completed", "released", "abandoned", "taken"} {
		watch(t, free, key)
	}
	require.NoError(t, limited.Complete(t.Context(), "completed", completed.Owner, []byte("x"), time.Hour))
	meet(t, limited, "completed", store.Done)
	require.NoError(t, limited.Release(t.Context(), "released", released.Owner))
	begin(t, limited, "released")
	require.NoError(t, limited.Abandon(t.Context(), "abandoned", abandoned.Owner))
	meet(t, limited, "abandoned", store.Abandoned)
	taker := newClaim()
	taker.Takeover = true
	g, err := limited.Acquire(t.Context(), "taken", taker)
	require.NoError(t, err)
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 2}, g)
}

// TestPermissions: what the package comment says a user needs is enough.
func TestPermissions(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	rights := []string{"idem", "on", ">secret",
		"resetkeys", "~idem:shop:*", "resetchannels", "&idem:wake",
		"-@all", "+eval", "+evalsha", "+get", "+set", "+del", "+pexpire", "+pttl",
		"+getrange", "+setrange", "+publish", "+subscribe", "+unsubscribe", "+ping", "+info", "+script|load"}
	allow := func(more ...string) {
		t.Helper()
		require.NoError(t, client.Do(t.Context(), client.B().Arbitrary("ACL", "SETUSER").Args(append(rights, more...)...).Build()).Error())
	}
	url := "redis://idem:secret@" + server.Addr()
	allow("+client")
	s := openURL(t, url, redisstore.Config{ClientSideCache: time.Minute})
	c := begin(t, s, "idem:shop:cached")
	require.NoError(t, s.Complete(t.Context(), "idem:shop:cached", c.Owner, nil, time.Hour))
	for range 3 { // the cache may not be used, and then isn't
		meet(t, s, "idem:shop:cached", store.Done)
	}
	const last = "publish" // that a store tries out when it is made
	await(t, client, last, 1)
	n := during(t, client, func() { meet(t, s, "idem:shop:cached", store.Done) })
	require.Equal(t, map[string]int{"set": 1, "pttl": 1}, n)

	allow("+client", "+multi", "+exec")
	s = openURL(t, url, redisstore.Config{ClientSideCache: time.Minute})
	for range 3 {
		meet(t, s, "idem:shop:cached", store.Done)
	}
	await(t, client, last, 2)
	require.Empty(t, during(t, client, func() { meet(t, s, "idem:shop:cached", store.Done) }))

	allow("-client")
	s = openURL(t, url, redisstore.Config{})
	c = begin(t, s, "idem:shop:k")
	changed := watch(t, s, "idem:shop:k")
	require.NoError(t, s.Renew(t.Context(), "idem:shop:k", c.Owner, time.Hour))
	require.NoError(t, s.Release(t.Context(), "idem:shop:k", c.Owner))
	woken(t, changed)
	c = begin(t, s, "idem:shop:abandoned")
	changed = watch(t, s, "idem:shop:abandoned")
	require.NoError(t, s.Abandon(t.Context(), "idem:shop:abandoned", c.Owner))
	woken(t, changed)
	c = begin(t, s, "idem:shop:k")
	require.NoError(t, s.Complete(t.Context(), "idem:shop:k", c.Owner, nil, time.Hour))
	meet(t, s, "idem:shop:k", store.Done)
	_, err := s.Acquire(t.Context(), "idem:mail:k", newClaim())
	require.ErrorContains(t, err, "NOPERM")
}

// TestCloseWakes: waiters of a closed store look for themselves, and the connection of a client
// that lives on is as it was.
func TestCloseWakes(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s, other := redisstore.New(client, redisstore.Config{}), redisstore.New(client, redisstore.Config{})
	t.Cleanup(other.Close)
	begin(t, s, "k")
	changed, others := watch(t, s, "k"), watch(t, other, "k")
	require.EqualValues(t, 2, subscribers(t, client))
	s.Close()
	woken(t, changed)
	require.Eventually(t, func() bool { return subscribers(t, client) == 1 }, 10*time.Second, time.Millisecond)
	asleep(t, others)
}
