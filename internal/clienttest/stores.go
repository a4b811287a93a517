package clienttest

import (
	"context"
	"crypto/tls"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
)

// Open opens a store for as long as tb runs. config is for rediss://.
type Open func(tb testing.TB, url string, config *tls.Config) *redisstore.Store

// Stores tests the store that open opens, on each kind of server. With -short it tests a client that is not the default one on one server
// and on a cluster: what else differs between servers, the default client has.
func Stores(t *testing.T, open Open, isDefault bool) {
	plain := func(tb testing.TB, url string) *redisstore.Store { return open(tb, url, nil) }
	run := func(name string, server func(t *testing.T) (url string, config *tls.Config)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, config := server(t)
			storetest.Run(t, factory(url, "", func(tb testing.TB, url string) *redisstore.Store { return open(tb, url, config) }),
				storetest.Features{})
		})
	}
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, Instances(t, backend.Redis(t), plain), storetest.Features{Faulty: Faulty(backend.StartRedis, plain)})
	})
	run("cluster", func(t *testing.T) (string, *tls.Config) { return backend.StartRedisCluster(t).URL(), nil })
	if testing.Short() && !isDefault {
		return
	}
	t.Run("one that compares", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, Instances(t, backend.StartValkey(t).URL(), plain), storetest.Features{Faulty: Faulty(backend.StartValkey, plain)})
	})
	run("Sentinel", func(t *testing.T) (string, *tls.Config) { return backend.StartRedisSentinel(t).URL(), nil })
	if testing.Short() {
		return
	}
	t.Run("moving slot", func(t *testing.T) { t.Parallel(); movingSlot(t, plain) })
	t.Run("failover", func(t *testing.T) { t.Parallel(); failover(t, backend.StartRedisSentinel(t), plain) })
	t.Run("failover of servers that compare", func(t *testing.T) { t.Parallel(); failover(t, backend.StartValkeySentinel(t), plain) })
	run("TLS", func(t *testing.T) (string, *tls.Config) { return backend.StartRedisTLS(t) })
	run("few rights", func(t *testing.T) (string, *tls.Config) {
		return "redis://idem:secret@" + backend.StartRedis(t, rights...).Addr(), nil
	})
	run("RESP2", func(t *testing.T) (string, *tls.Config) { return backend.StartRedis(t).URL() + "?protocol=2", nil })
}

// rights are what a user of the store and of its inspector needs, with a client that caches, as the package documentation has it.
var rights = []string{"--user", "idem", "on", ">secret", "~*", "resetchannels", "&idem:wake", "-@all",
	"+eval", "+evalsha", "+get", "+set", "+del", "+pexpire", "+pttl", "+getrange", "+setrange",
	"+publish", "+subscribe", "+unsubscribe", "+ping", "+info", "+script|load", "+scan", "+strlen", "+client"}

// Instances makes name spaces in a server or servers that others may use. What is in them is
// removed when tb ends.
func Instances(tb testing.TB, url string, open func(tb testing.TB, url string) *redisstore.Store) storetest.Factory {
	all := "storetest:" + store.NewOwner().String() + ":"
	tb.Cleanup(func() { unlink(tb, url, all) })
	return factory(url, all, open)
}

// factory makes name spaces, whose keys begin with all.
func factory(url, all string, open func(tb testing.TB, url string) *redisstore.Store) storetest.Factory {
	return func(tb testing.TB) storetest.Instance {
		prefix := all + store.NewOwner().String() + ":"
		peer := func() store.Store { return prefixed{open(tb, url), prefix} }
		return storetest.Instance{Store: peer(), Peer: peer}
	}
}

// Faulty makes a store on a server that keeps what it has acknowledged, and is killed and started again, or loses its connections.
func Faulty(start func(testing.TB, ...string) *backend.Server, open func(tb testing.TB, url string) *redisstore.Store) func(tb testing.TB) (
	storetest.Instance, func()) {
	return func(tb testing.TB) (storetest.Instance, func()) {
		server := start(tb, "--appendonly", "yes", "--appendfsync", "always")
		link := backend.NewProxy(tb, server.Addr())
		url := link.URL(server.URL())
		round := 0
		disturb := func() {
			round++
			switch round % 5 {
			case 0:
				server.Kill()
				server.Start()
			case 1:
				link.Cut()
				link.Restore()
			case 2:
				awaitCut(link.CutAfter([]byte("EVALSHA")))
			case 3:
				awaitCut(link.CutAfter([]byte("R1;"))) // a claim
			case 4:
				awaitCut(link.CutAfter([]byte("D1;"))) // a result, of a record that the store knows
			}
		}
		peer := func() store.Store { return open(tb, url) }
		return storetest.Instance{Store: peer(), Peer: peer}, disturb
	}
}

// awaitCut waits until the link is cut. If no call comes, the cut is left for the next round.
func awaitCut(cut <-chan struct{}) {
	select {
	case <-cut:
	case <-time.After(3 * time.Second):
	}
}

// unlink removes the keys that begin with prefix.
func unlink(tb testing.TB, url, prefix string) {
	client := dial(tb, url)
	for _, key := range Keys(tb, url, prefix) {
		if err := client.Do(context.Background(), client.B().Unlink().Key(key).Build()).Error(); err != nil {
			tb.Error(err)
		}
	}
}

// Keys returns the keys that begin with prefix.
func Keys(tb testing.TB, url, prefix string) []string {
	client := dial(tb, url)
	found := map[string]bool{} // a scan may show one twice
	for _, node := range client.Nodes() {
		for cursor := uint64(0); ; {
			page, err := node.Do(context.Background(), node.B().Scan().Cursor(cursor).Match(prefix+"*").Count(1000).Build()).AsScanEntry()
			if err != nil {
				tb.Error(err)
				break
			}
			for _, key := range page.Elements {
				found[key] = true
			}
			if cursor = page.Cursor; cursor == 0 {
				break
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

func dial(tb testing.TB, url string) rueidis.Client {
	tb.Helper()
	options, err := rueidis.ParseURL(url)
	if err != nil {
		tb.Fatal(err)
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	return client
}

// prefixed is a name space. Keys are exact, and so they are behind a prefix.
type prefixed struct {
	*redisstore.Store
	prefix string
}

func (p prefixed) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	return p.Store.Acquire(ctx, p.prefix+key, c)
}

func (p prefixed) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	return p.Store.Renew(ctx, p.prefix+key, owner, lease)
}

func (p prefixed) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	return p.Store.Complete(ctx, p.prefix+key, owner, result, retention)
}

func (p prefixed) Release(ctx context.Context, key string, owner store.Owner) error {
	return p.Store.Release(ctx, p.prefix+key, owner)
}

func (p prefixed) Abandon(ctx context.Context, key string, owner store.Owner) error {
	return p.Store.Abandon(ctx, p.prefix+key, owner)
}

func (p prefixed) Capabilities() store.Capabilities {
	can := p.Store.Capabilities()
	watch := can.Watch
	can.Watch = func(ctx context.Context, key string) (<-chan struct{}, func(), error) {
		return watch(ctx, p.prefix+key)
	}
	can.Inspect = prefixedInspector{can.Inspect, p.prefix}
	checkpoint, fail, outlive := can.Checkpoint, can.Fail, can.Outlive
	can.Outlive = func(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
		return outlive(ctx, p.prefix+key, owner, result, retention, known)
	}
	can.Checkpoint = func(ctx context.Context, key string, owner store.Owner, steps []byte) error {
		return checkpoint(ctx, p.prefix+key, owner, steps)
	}
	can.Fail = func(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
		return fail(ctx, p.prefix+key, owner, goesOn)
	}
	return can
}

type prefixedInspector struct {
	store.Inspector
	prefix string
}

func (p prefixedInspector) Lookup(ctx context.Context, key string) (store.Record, error) {
	r, err := p.Inspector.Lookup(ctx, p.prefix+key)
	r.Key = strings.TrimPrefix(r.Key, p.prefix)
	return r, err
}

func (p prefixedInspector) List(ctx context.Context, q store.Query, cursor string) ([]store.Record, string, error) {
	q.Prefix = p.prefix + q.Prefix
	if match := q.Match; match != nil {
		q.Match = func(key string) bool { return match(key[len(p.prefix):]) }
	}
	page, next, err := p.Inspector.List(ctx, q, cursor)
	for i := range page {
		page[i].Key = page[i].Key[len(p.prefix):]
	}
	return page, next, err
}

func (p prefixedInspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	return p.Inspector.Change(ctx, p.prefix+key, expected, c)
}
