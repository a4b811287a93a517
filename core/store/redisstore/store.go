package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/idem-go/idem/core/store"
)

var (
	errLease = errors.New("redisstore: a lease must be longer than zero")
	// net/url's error may quote a password.
	errURL = errors.New(
		"redisstore: the URL is malformed: it is redis://user:password@host:6379/0, with user and password percent-encoded, " +
			"or begins with rediss:// or unix://")
)

var schemes = []string{"redis", "rediss", "unix", "valkey", "valkeys"}

// Store keeps records in Redis. It implements store.Store. All methods are
// safe for concurrent use. The zero Store is not usable; make one with [New] or [NewURL].
type Store struct {
	calls
	watches
	finished    finished
	cache       CachingClient // nil: replays are not cached
	claimed     claimed
	closeClient func() // which NewURL has made
	warn        func(error)

	replicated *replicated // nil: writes do not wait for replicas
}

// Config configures a [Store]. The zero Config has the defaults.
type Config struct {
	// Warn gets warnings about a server's settings: its maxmemory-policy is not noeviction, so it may drop records, or the user may
	// not run a command that the store needs. It is called at most once for each server and setting, soon after the store was made,
	// in a goroutine of the store, and not after Close has returned. Nil: a warning is logged with slog.Default.
	Warn func(error)

	// ClientSideCache greater than zero lets replays come from the client's cache in this process, if the client has one
	// (client-side caching, RESP3). A result stays there for at most that long; the server tells the client when the record is
	// gone. The package comment says what that saves, and why it is safe.
	ClientSideCache time.Duration

	// WaitForReplicas greater than zero makes each call that writes wait until that many replicas have acknowledged the write, by
	// Redis's WAIT. If fewer have within ReplicaTimeout, the call returns an error, and the write may or may not outlast a
	// failover. Then an engine refuses a request if it was the claim, and still delivers the response of a run if it was the
	// result. See What can be lost in the package documentation for the cost, and for what may still be lost. WaitForReplicas is a
	// fault with a client of a cluster, or one that follows redirections.
	WaitForReplicas int

	// ReplicaTimeout is the limit of WaitForReplicas. Zero: 500 ms. A call takes up to twice the limit, and storing a result is
	// tried again if it fails. So ReplicaTimeout should be at most a quarter of the engine's StoreTimeout.
	ReplicaTimeout time.Duration
}

// Capabilities implements store.Store: the store can be watched and inspected, and keeps steps.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{Watch: s.watch, Inspect: inspector{s}, Checkpoint: s.checkpoint, Fail: s.fail, Outlive: s.outlive}
}

// New returns a store that uses client, which remains the caller's: Close does not close it. New panics if client is nil, or if c
// has a fault. The client may be for a single server, for Sentinel or for a cluster. It must not send the store's commands to
// replicas (SendToReplicas). The package documentation, under Clients, describes the effects and costs of its options;
// PipelineMultiplex: -1 suits most services.
//
// New does not wait for the server. The store shares the client's connections, except for the one on which waiters are woken.
func New(client rueidis.Client, c Config) *Store {
	if client == nil {
		panic("redisstore: New was given no client")
	}
	return NewWithClient(rueidisClient{client}, c)
}

// NewWithClient is [New] for a client other than rueidis.
func NewWithClient(client Client, c Config) *Store {
	if client == nil {
		panic("redisstore: NewWithClient was given no client")
	}
	s := configure(c)
	if err := s.open(client); err != nil {
		panic(err.Error())
	}
	return s
}

// configure returns a store without a client.
func configure(c Config) *Store {
	s := &Store{warn: c.Warn, claimed: claimed{records: map[store.Owner]string{}},
		finished: finished{ttl: c.ClientSideCache, records: map[string]known{}}}
	if s.warn == nil {
		s.warn = func(err error) { slog.Default().Warn(err.Error()) }
	}
	if n, limit := c.WaitForReplicas, c.ReplicaTimeout; n > 0 {
		if limit <= 0 {
			limit = 500 * time.Millisecond
		}
		s.replicated = &replicated{n: n, wait: []string{"WAIT", strconv.Itoa(n), strconv.FormatInt(ceil(limit), 10)}}
	}
	return s
}

func (s *Store) open(client Client) error {
	if s.finished.ttl > 0 {
		s.cache, _ = client.(CachingClient) // nil: it has none
	}
	s.client = inBatches(client, &s.calls)
	if _, is := s.client.(*batcher); !is && s.cache == nil {
		s.finished.off.Store(true) // a cluster's client may send GET to a replica
	}
	if r := s.replicated; r != nil {
		b, is := s.client.(*batcher)
		if !is {
			return errCluster
		}
		r.Client = client
		b.Client, b.turn = r, new(sync.Mutex)
	}
	s.alive, s.end = context.WithCancel(context.Background())
	s.waiters = map[string]map[*waiter]struct{}{}
	s.prepareServers()
	return nil
}

// NewURL connects to the server or servers that url names, and returns a store that owns
// the client. It returns an error if url is malformed or no server answers.
//
//	redis://user:password@host:6379/0            one server; rediss:// with TLS
//	unix:///path/to/redis.sock?db=0              on a socket
//	redis://host1:6379?addr=host2:6379           a cluster, by some of its nodes
//	redis://sentinel1:26379?addr=sentinel2:26379&master_set=main
//
// The other parameters are those of rueidis.ParseURL. The default of dial_timeout, which
// includes the handshake, is 2 s. A connection that is silent for write_timeout, 3 s by default, is closed, and may be
// closed if the answers to what was sent together take longer.
//
// Sentinels are called with the URL's TLS settings, but without its user and password. If
// yours need them, make a client and use [New].
func NewURL(url string, c Config) (*Store, error) {
	o, err := rueidis.ParseURL(url)
	if err != nil {
		scheme, _, _ := strings.Cut(url, "://")
		if faulty := (*neturl.Error)(nil); errors.As(err, &faulty) || !slices.Contains(schemes, scheme) {
			return nil, errURL
		}
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = 2 * time.Second
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = 3 * time.Second
	}
	o.Dialer.KeepAlive = time.Second
	o.Sentinel.Dialer, o.Sentinel.TLSConfig = o.Dialer, o.TLSConfig
	o.Sentinel.TopologyRefreshInterval = 5 * time.Second // in case a sentinel's message is lost
	s := configure(c)
	o.DisableCache = o.DisableCache || o.AlwaysRESP2 || s.finished.ttl <= 0
	// One connection to each server, so that what follows a call arrives after it.
	o.PipelineMultiplex = -1
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w (at %s)", err, strings.Join(o.InitAddress, ", "))
	}
	if err := s.open(rueidisClient{client}); err != nil {
		client.Close()
		return nil, err
	}
	s.closeClient = client.Close
	return s, nil
}

// Close ends the store's subscription, and closes its client if [NewURL] made it. Waiters are woken. Later calls fail. Calls under
// way fail as well if the client is the store's. Close returns when no goroutine of the store is left; that takes at most as long
// as the client keeps a connection that does not answer. Closing twice does nothing.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed.Store(true)
	s.mu.Unlock()
	s.end()
	if s.closeClient != nil {
		s.closeClient()
		defer s.closeClient() // a connection that a call was making meanwhile
	}
	s.wg.Wait()
}

// Acquire implements store.Store.
func (s *Store) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	if err := claim.Validate(); err != nil {
		return store.Grant{}, err
	}
	if g, ok := s.replay(ctx, key); ok {
		return g, nil
	}
	sent := time.Now()
	do := acquireCommand(key, claim, sent)
	a, repeated, err := s.run(ctx, do)
	if err != nil {
		return store.Grant{}, err
	}
	if a.number == 1 && a.record == "" { // it is the record as it was sent
		s.claimed.add(claim.Owner, do.args[0])
	}
	if a.number != 0 {
		g := store.Grant{State: store.Acquired, Attempt: uint64(max(a.number, -a.number)),
			Free: a.number < 0, ID: claim.ID, Secret: claim.Secret}
		if told := a.record; told != "" {
			copy(g.ID[:], told)
			secret, rest, ok := cutText(told[len(g.ID):])
			if !ok {
				return store.Grant{}, errNoRecord
			}
			g.Secret, g.Steps = strings.Clone(secret), steps(rest)
		}
		return g, nil
	}
	r, err := parseRecord(a.record, a.left)
	if err != nil {
		return store.Grant{}, err
	}
	if repeated && r.state == store.Running && r.owner == string(claim.Owner[:]) {
		// the first try made it
		return store.Grant{State: store.Acquired, Attempt: r.attempt, Free: r.free && !r.uncertain, ID: r.about.ID,
			Secret: r.secret, Steps: steps(r.result)}, nil
	}
	// When a record loses its result, only the server's clock tells: a process whose replays are cached trusts its own.
	if r.state == store.Done && !r.expired && (s.cache != nil || !r.outlives) {
		s.finished.add(key, sent, r.remaining, hashOf(a.record, &r))
	}
	return r.grant(), nil
}

// Renew implements store.Store.
func (s *Store) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	if lease <= 0 {
		return errLease
	}
	return s.runOwned(ctx, command{script: renewScript, key: key,
		args: [6]string{string(owner[:]), strconv.FormatInt(ceil(lease), 10)}, n: 2})
}

// Complete implements store.Store.
func (s *Store) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	if retention <= 0 {
		return s.drop(ctx, key, owner, "free")
	}
	return s.complete(ctx, key, owner, ceil(retention), -1, result)
}

// outlive is store.Capabilities.Outlive.
func (s *Store) outlive(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
	return s.complete(ctx, key, owner, ceil(retention), ceil(known), result)
}

func (s *Store) complete(ctx context.Context, key string, owner store.Owner, retention, outlives int64, result []byte) error {
	known := s.claimed.take(owner)
	if len(result) == 0 {
		known = "" // the script makes room for it in a full server
	}
	return s.runOwned(ctx, completeCommand(key, owner, retention, outlives, result, known))
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, key string, owner store.Owner) error {
	return s.runOwned(ctx, command{script: releaseScript, key: key, args: [6]string{string(owner[:])}, n: 1,
		known: s.claimed.take(owner)})
}

// Abandon implements store.Store.
func (s *Store) Abandon(ctx context.Context, key string, owner store.Owner) error {
	return s.drop(ctx, key, owner, "abandon")
}

// checkpoint is store.Capabilities.Checkpoint.
func (s *Store) checkpoint(ctx context.Context, key string, owner store.Owner, steps []byte) error {
	s.claimed.take(owner)
	return s.runOwned(ctx, command{script: checkpointScript, key: key, args: [6]string{string(owner[:]), string(steps)}, n: 2})
}

// fail is store.Capabilities.Fail.
func (s *Store) fail(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
	if goesOn {
		return s.drop(ctx, key, owner, "keep")
	}
	return s.drop(ctx, key, owner, "free")
}

// drop ends a run without a result. See release.lua for what becomes of it.
func (s *Store) drop(ctx context.Context, key string, owner store.Owner, how string) error {
	s.claimed.take(owner)
	return s.runOwned(ctx, command{script: releaseScript, key: key, args: [6]string{string(owner[:]), how}, n: 2})
}

// runOwned runs a script that changes a record only for its owner.
func (s *Store) runOwned(ctx context.Context, do command) error {
	a, repeated, err := s.run(ctx, do)
	switch {
	case err != nil || a.number != 0:
		return err
	case repeated:
		return errUnknown
	}
	return store.ErrLost
}

// errUnknown is returned in place of store.ErrLost if the script may have run before.
var errUnknown = errors.New("redisstore: the connection was lost; the call may or may not have taken effect")

// run runs a command. See call for repeated.
func (c *calls) run(ctx context.Context, do command) (a answer, repeated bool, err error) {
	a, repeated, err = c.call(ctx, do)
	switch {
	case err == nil:
	case isFull(err):
		err = store.ErrFull
	case errors.Is(err, errClosed), errors.Is(err, errStuck), errors.Is(err, errNoRecord):
	default:
		err = fmt.Errorf("redisstore: %w", err)
	}
	return a, repeated, err
}

// isFull reports whether a server has refused a command for lack of memory. Before Redis 7,
// a script's error is wrapped in another message.
func isFull(err error) bool {
	return isServerError(err) && strings.Contains(err.Error(), "OOM command not allowed")
}
