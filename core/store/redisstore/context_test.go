package redisstore_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// patient returns a client without timeouts of its own, so that only the store ends a call.
func patient(t *testing.T, url string, dial func(ctx context.Context, addr string) (net.Conn, error)) rueidis.Client {
	t.Helper()
	o, err := rueidis.ParseURL(url)
	require.NoError(t, err)
	o.Dialer.Timeout, o.ConnWriteTimeout = time.Hour, time.Hour
	o.ForceSingleClient = true
	o.PipelineMultiplex = -1 // one connection
	if dial != nil {
		o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dial(ctx, addr)
		}
	}
	client, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// all calls each method n times at once, with a context that ends soon or has ended, and
// expects that all return with the context's error.
func all(t *testing.T, s *redisstore.Store, n int, end func() (context.Context, context.CancelFunc), want error) {
	t.Helper()
	var wg sync.WaitGroup
	owner := store.NewOwner()
	for name, call := range map[string]func(ctx context.Context) error{
		"Acquire":  func(ctx context.Context) error { _, err := s.Acquire(ctx, "k", newClaim()); return err },
		"Renew":    func(ctx context.Context) error { return s.Renew(ctx, "k", owner, time.Hour) },
		"Complete": func(ctx context.Context) error { return s.Complete(ctx, "k", owner, []byte("x"), time.Hour) },
		"Release":  func(ctx context.Context) error { return s.Release(ctx, "k", owner) },
		"Abandon":  func(ctx context.Context) error { return s.Abandon(ctx, "k", owner) },
		"Watch":    func(ctx context.Context) error { _, _, err := s.Capabilities().Watch(ctx, "k"); return err },
	} {
		for range n {
			wg.Go(func() {
				ctx, cancel := end()
				defer cancel()
				if err := call(ctx); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			})
		}
	}
	returned := make(chan struct{})
	go func() { wg.Wait(); close(returned) }()
	select {
	case <-returned:
	case <-time.After(20 * time.Second):
		t.Error("calls go on although their contexts have ended")
	}
}

func soonLate() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 20*time.Millisecond)
}

// soonCancelled has a deadline, too, but one that is far away.
func soonCancelled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	time.AfterFunc(20*time.Millisecond, cancel)
	return ctx, cancel
}

// TestFrozenServer: calls return in time although a connected server does not answer. There are more of them than the
// client's queue holds.
func TestFrozenServer(t *testing.T) {
	server := backend.StartRedis(t)
	s := redisstore.New(patient(t, server.URL(), nil), redisstore.Config{})
	t.Cleanup(s.Close)
	for range 50 { // a busy store, whose connections are trusted
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _, _ = s.Acquire(t.Context(), "k", newClaim()) })
		}
		wg.Wait()
	}
	server.Freeze()
	defer server.Thaw()
	all(t, s, 5, soonCancelled, context.Canceled)
	all(t, s, 700, soonLate, context.DeadlineExceeded)
	server.Thaw()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g, err := s.Acquire(ctx, "k", newClaim())
		return err == nil && g.State == store.Running
	}, 20*time.Second, 10*time.Millisecond)
}

// TestConnecting: calls return in time although the server accepts the next connection without answering, or the address drops
// every packet.
func TestConnecting(t *testing.T) {
	server := backend.StartRedis(t)
	link := backend.NewProxy(t, server.Addr())
	release := make(chan struct{})
	var dials atomic.Int32
	var swallows atomic.Bool
	client := patient(t, link.URL(server.URL()), func(_ context.Context, addr string) (net.Conn, error) {
		dials.Add(1)
		if swallows.Load() {
			<-release // whatever the context says
		}
		return net.Dial("tcp", addr)
	})
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)

	reconnect := func() { // calls that meet with the end of the old connection fail by that
		before := dials.Load()
		link.Cut()
		link.Restore()
		require.Eventually(t, func() bool {
			ctx, cancel := soonLate()
			defer cancel()
			_, err := s.Acquire(ctx, "k", newClaim())
			again, cancel := soonLate()
			defer cancel()
			_, _, watched := s.Capabilities().Watch(again, "k") // on a new subscription, too
			return err != nil && errors.Is(watched, context.DeadlineExceeded) && dials.Load() > before
		}, 10*time.Second, time.Millisecond)
	}
	begin(t, s, "k")
	link.Stall()
	reconnect()
	all(t, s, 20, soonLate, context.DeadlineExceeded)
	all(t, s, 20, soonCancelled, context.Canceled)
	link.Resume()
	meet(t, s, "k", store.Running)

	swallows.Store(true)
	reconnect()
	all(t, s, 20, soonCancelled, context.Canceled)
	close(release)
	meet(t, s, "k", store.Running)
}

// TestResultIsCopied: the caller may change its bytes after a call that was given up and is still being sent.
func TestResultIsCopied(t *testing.T) {
	server := backend.StartRedis(t)
	slow := &slowConn{started: make(chan struct{}), goOn: make(chan struct{})}
	client := patient(t, server.URL(), func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		slow.Conn = conn
		return slow, err
	})
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	c := begin(t, s, "known")
	require.NoError(t, s.Complete(t.Context(), "known", c.Owner, nil, time.Hour)) // the server knows the script
	c = begin(t, s, "k")
	want := bytes.Repeat([]byte("mine"), 1<<20) // more than the client's buffer holds
	result := bytes.Clone(want)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-slow.started; cancel() }()
	require.ErrorIs(t, s.Complete(ctx, "k", c.Owner, result, time.Hour), context.Canceled)
	clear(result)
	close(slow.goOn)
	require.Eventually(t, func() bool {
		g, err := s.Acquire(t.Context(), "k", newClaim())
		return err == nil && g.State == store.Done && bytes.Equal(g.Result, want)
	}, 10*time.Second, 10*time.Millisecond)
}

// slowConn is a connection on which the first large write waits.
type slowConn struct {
	net.Conn
	once          sync.Once
	started, goOn chan struct{}
}

func (c *slowConn) Write(p []byte) (int, error) {
	if len(p) > 64<<10 {
		c.once.Do(func() { close(c.started); <-c.goOn })
	}
	return c.Conn.Write(p)
}

// TestClosedStore: after Close, every call fails, and the client is its owner's.
func TestClosedStore(t *testing.T) {
	client := openClient(t, backend.Redis(t))
	s := redisstore.New(client, redisstore.Config{ClientSideCache: time.Minute})
	s.Close()
	s.Close()
	_, err := s.Acquire(t.Context(), "k", newClaim())
	require.Error(t, err)
	require.Error(t, s.Renew(t.Context(), "k", store.NewOwner(), time.Hour))
	_, _, err = s.Capabilities().Watch(t.Context(), "k")
	require.Error(t, err)
	require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())

}

func TestNewURL(t *testing.T) {
	for _, url := range []string{"127.0.0.1:6379", "localhost:6379", "user:secret@127.0.0.1:6379", "http://127.0.0.1", "",
		"redis://user:secret#word@127.0.0.1", "redis://user:%secret@127.0.0.1"} {
		_, err := redisstore.NewURL(url, redisstore.Config{})
		require.ErrorContains(t, err, "redis://user:password@host:6379/0", url)
		require.ErrorContains(t, err, "rediss:// or unix://", url)
		require.NotContains(t, err.Error(), "secret", url)
	}
	nobody := backend.NewProxy(t, "127.0.0.1:1")
	nobody.Cut()
	_, err := redisstore.NewURL("redis://"+nobody.Addr(), redisstore.Config{})
	require.Error(t, err)
}
