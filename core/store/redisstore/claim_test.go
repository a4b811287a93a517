package redisstore_test

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/clienttest"
)

// TestScripts: the suite, on a server that does not know the command for a claim.
func TestScripts(t *testing.T) {
	t.Parallel()
	old := func(tb testing.TB, url string) *redisstore.Store {
		s := redisstore.New(early{Client: openClient(tb, url)}, redisstore.Config{})
		tb.Cleanup(s.Close)
		return s
	}
	storetest.Run(t, clienttest.Instances(t, backend.Redis(t), old), storetest.Features{Faulty: clienttest.Faulty(backend.StartRedis, old)})
}

// TestUpgrade: a server that has refused the command for a claim is asked again, but not at each claim.
func TestUpgrade(t *testing.T) {
	var upgraded atomic.Bool
	client := openClient(t, backend.StartRedis(t).URL())
	s, b := openOn(t, early{client, &upgraded}, redisstore.Config{})
	trips := func(key string) int32 {
		b.trips.Store(0)
		begin(t, s, key)
		return b.trips.Load()
	}
	require.Equal(t, []string{"evalsha", "get", "set"}, executed(t, client, func() { require.EqualValues(t, 1, trips("known")) }))
	redisstore.TryNative(s)
	require.EqualValues(t, 2, trips("tried"))
	upgraded.Store(true)
	require.EqualValues(t, 1, trips("not tried"))
	redisstore.TryNative(s)
	require.Equal(t, []string{"pttl", "set"}, executed(t, client, func() { require.EqualValues(t, 1, trips("tried again")) }))
	require.Equal(t, []string{"pttl", "set"}, executed(t, client, func() { begin(t, s, "from now on") }))
}

// TestStepsAreDeleted: they may tell of people, and are gone from the server with their operation.
func TestStepsAreDeleted(t *testing.T) {
	s, client := openURL(t, backend.Redis(t), redisstore.Config{}), openClient(t, backend.Redis(t))
	ctx, can := t.Context(), s.Capabilities()
	for name, end := range map[string]func(key string, owner store.Owner) error{
		"done": func(key string, owner store.Owner) error {
			return s.Complete(ctx, key, owner, []byte("result"), time.Hour)
		},
		"outlived": func(key string, owner store.Owner) error {
			return can.Outlive(ctx, key, owner, []byte("result"), time.Hour, time.Hour)
		},
		"forgotten":       func(key string, owner store.Owner) error { return s.Complete(ctx, key, owner, nil, 0) },
		"failed for good": func(key string, owner store.Owner) error { return can.Fail(ctx, key, owner, false) },
	} {
		key, c := name+store.NewOwner().String(), newClaim()
		c.ID, c.Takeover = store.NewID(), true
		for range 2 {
			_ = s.Abandon(ctx, key, c.Owner) // of the first run
			_, err := s.Acquire(ctx, key, c)
			require.NoError(t, err)
			require.NoError(t, can.Checkpoint(ctx, key, c.Owner, []byte("steps of alice")))
		}
		require.NoError(t, end(key, c.Owner))
		record, err := client.Do(ctx, client.B().Getdel().Key(key).Build()).ToString()
		require.NoError(t, err)
		require.NotContains(t, record, "alice", name)
	}
}

// TestBetweenTheCommands: a claim's answer is right whatever happens between its two commands.
func TestBetweenTheCommands(t *testing.T) {
	url := backend.StartRedis(t).URL()
	client := openClient(t, url)
	s, b := openBetween(t, url, redisstore.Config{})
	other := openURL(t, url, redisstore.Config{})
	ctx := t.Context()
	command := func(args ...string) {
		t.Helper()
		require.NoError(t, client.Do(ctx, client.B().Arbitrary(args...).Build()).Error())
	}
	done := func(key, result string, retention time.Duration) {
		t.Helper()
		c := begin(t, other, key)
		require.NoError(t, other.Complete(ctx, key, c.Owner, []byte(result), retention))
	}
	acquire := func(key string, meanwhile func()) store.Grant {
		t.Helper()
		b.apart = meanwhile
		g, err := s.Acquire(ctx, key, newClaim())
		require.NoError(t, err)
		require.Nil(t, b.apart)
		return g
	}

	done("expires", "result", time.Minute)
	g := acquire("expires", func() { command("PEXPIRE", "expires", "0") })
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 1}, g)

	done("is begun anew", "result", time.Minute)
	g = acquire("is begun anew", func() {
		command("DEL", "is begun anew")
		begin(t, other, "is begun anew")
	})
	require.Equal(t, store.Running, g.State)
	require.LessOrEqual(t, g.Remaining, time.Hour)

	done("is done anew", "first", time.Minute)
	g = acquire("is done anew", func() {
		command("DEL", "is done anew")
		done("is done anew", "second", time.Hour)
	})
	require.Equal(t, store.Done, g.State)
	require.Equal(t, "second", string(g.Result))

	done("is kept", "result", time.Minute)
	g = acquire("is kept", func() { command("PERSIST", "is kept") })
	require.Equal(t, store.Done, g.State)
	require.EqualValues(t, math.MaxInt64, g.Remaining)

	done("has stood for a while", "result", time.Minute)
	g = acquire("has stood for a while", func() { command("PEXPIRE", "has stood for a while", "30000") })
	require.LessOrEqual(t, g.Remaining, 30*time.Second)

	// One that has outlived its result is forgotten, and what follows is kept for longer than it was known.
	c := begin(t, other, "outlives")
	require.NoError(t, other.Capabilities().Outlive(ctx, "outlives", c.Owner, []byte("old"), time.Millisecond, time.Minute))
	g = acquire("outlives", func() {
		command("DEL", "outlives")
		begin(t, other, "outlives")
	})
	require.Equal(t, store.Running, g.State)

	// What remains of the result is less than the claim's retention.
	c = begin(t, other, "ends")
	g = acquire("ends", func() {
		require.NoError(t, other.Complete(ctx, "ends", c.Owner, []byte("result"), time.Minute))
	})
	require.Equal(t, store.Done, g.State)
	require.LessOrEqual(t, g.Remaining, time.Minute)

	c = begin(t, other, "is released")
	g = acquire("is released", func() { require.NoError(t, other.Release(ctx, "is released", c.Owner)) })
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 1}, g)

	c = begin(t, other, "is abandoned")
	g = acquire("is abandoned", func() { require.NoError(t, other.Abandon(ctx, "is abandoned", c.Owner)) })
	require.Equal(t, store.Abandoned, g.State)

	g = acquire("is free", func() { command("DEL", "is free") })
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 1}, g)
}

// TestRecordsOf010: those of a process of 0.1.0, and of claims without an About, tell nothing. They are found, inspected and changed
// like any other, and go on as an operation when they are claimed again.
func TestRecordsOf010(t *testing.T) {
	client := openClient(t, backend.StartRedis(t).URL())
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	owner := "sixteen bytes..."
	for key, record := range map[string]string{
		"done": "D1;0;32;" + fingerprint + "result", "running": "R1;0;32;" + owner + fingerprint,
		"lapsed": "R1;3600000;32;" + owner + fingerprint, "abandoned": "A2;0;32;" + fingerprint, "free": "A2;0;032;" + fingerprint,
		"uncountable": "A9007199254740993;0;32;" + fingerprint,
	} {
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value(record).Px(time.Minute).Build()).Error())
	}
	g := meet(t, s, "done", store.Done)
	require.Equal(t, fingerprint, g.Fingerprint)
	require.Equal(t, "result", string(g.Result))
	require.Greater(t, g.Remaining, 30*time.Second)
	require.LessOrEqual(t, g.Remaining, time.Minute)
	taking := newClaim()
	taking.Takeover = true
	g, err := s.Acquire(t.Context(), "uncountable", taking)
	require.NoError(t, err)
	require.Equal(t, store.Abandoned, g.State, "a script would lose a digit of its attempt")

	inspect := s.Capabilities().Inspect
	for key, state := range map[string]store.State{"done": store.Done, "running": store.Running, "lapsed": store.Abandoned,
		"abandoned": store.Abandoned, "free": store.Free, "uncountable": store.Abandoned} {
		r, err := inspect.Lookup(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, state, r.State, key)
		require.Zero(t, r.ID)
		require.Zero(t, r.Begun)
	}
	// What is somebody else's is in no list.
	require.NoError(t, client.Do(t.Context(), client.B().Hset().Key("hash").FieldValue().FieldValue("a", "b").Build()).Error())
	require.NoError(t, client.Do(t.Context(), client.B().Set().Key("text").Value("R is for robot").Build()).Error())
	page, _, err := inspect.List(t.Context(), store.Query{}, "zzz:6379 7")
	require.NoError(t, err)
	require.Len(t, page, 6, "the server at which the list was is another one since a failover")
	for _, key := range []string{"lapsed", "abandoned"} {
		r, err := inspect.Lookup(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, inspect.Change(t.Context(), key, r, store.Change{To: store.Free, Remark: "released"}))
		r, err = inspect.Lookup(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, "released", r.Remark)
		require.Greater(t, r.Remaining, 30*time.Second)
	}
	for _, key := range []string{"lapsed", "abandoned", "free"} {
		c := newClaim()
		c.ID = store.NewID()
		g, err := s.Acquire(t.Context(), key, c)
		require.NoError(t, err)
		require.Equal(t, store.Acquired, g.State, key)
		require.Equal(t, key == "free", g.Free)
		require.Equal(t, c.ID, g.ID)
		r, err := inspect.Lookup(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, c.ID, r.ID)
		require.WithinDuration(t, time.Now(), r.Begun, time.Minute)
	}
}

// TestRecordsBesideVersion010: what a process of 0.1.0 makes of records that tell something. It reads a number, the retention and the
// fingerprint of an unfinished one as they are, and compares the attempt that it is to take over as text; of a finished one it can't
// read the result.
func TestRecordsBesideVersion010(t *testing.T) {
	client := openClient(t, backend.Redis(t))
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	key := store.NewOwner().String()
	stored := func() string {
		record, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
		require.NoError(t, err)
		return record
	}
	plain := begin(t, s, key)
	require.NoError(t, s.Abandon(t.Context(), key, plain.Owner))
	plain.Takeover = true
	for _, attempt := range []string{"R2;", "R3;"} { // the second one claims a free record
		_, err := s.Acquire(t.Context(), key, plain)
		require.NoError(t, err)
		require.Equal(t, attempt, stored()[:3])
		require.NoError(t, s.Complete(t.Context(), key, plain.Owner, nil, 0))
	}
	c := newClaim()
	c.ID, c.Fingerprint = store.NewID(), fingerprint
	g, err := s.Acquire(t.Context(), key, c)
	require.NoError(t, err)
	require.EqualValues(t, 4, g.Attempt)
	require.Regexp(t, "^R04;[0-9]+;032;", stored())
	require.NoError(t, s.Complete(t.Context(), key, c.Owner, []byte("result"), time.Hour))
	_, after, found := strings.Cut(stored(), fingerprint)
	require.True(t, found)
	require.Greater(t, after[0], byte(5), "the kinds of results that 0.1.0 knows")

	// It reads the retention of a finished one as a number, and lets what it can't read stand.
	key = store.NewOwner().String()
	c.ID, c.Owner = store.NewID(), store.NewOwner()
	_, err = s.Acquire(t.Context(), key, c)
	require.NoError(t, err)
	require.NoError(t, s.Capabilities().Outlive(t.Context(), key, c.Owner, []byte("result"), time.Hour, time.Minute))
	attempt, after, _ := strings.Cut(stored(), ";")
	retention, _, _ := strings.Cut(after, ";")
	known, err := strconv.ParseInt(retention, 10, 64)
	require.NoError(t, err)
	require.Equal(t, "D01", attempt)
	require.Equal(t, time.Minute.Milliseconds(), known)
	left, err := client.Do(t.Context(), client.B().Pttl().Key(key).Build()).AsInt64()
	require.NoError(t, err)
	require.Greater(t, left, time.Hour.Milliseconds())
}

// TestServersThatDoNotWrite: one that refuses to write for now still says what stands. (TestFullServer
// is about another reason.)
func TestServersThatDoNotWrite(t *testing.T) {
	for name, test := range map[string]struct {
		args     []string
		commands [][]string
		code     string
	}{
		"a replica":         {commands: [][]string{{"REPLICAOF", "127.0.0.1", "1"}}, code: "READONLY"},
		"too few replicas":  {commands: [][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, code: "NOREPLICAS"},
		"a disk that fails": {args: []string{"--dir", "/proc", "--save", "3600 1"}, commands: [][]string{{"BGSAVE"}}, code: "MISCONF"},
	} {
		t.Run(name, func(t *testing.T) {
			client := openClient(t, backend.StartRedis(t, test.args...).URL())
			s := redisstore.New(client, redisstore.Config{})
			t.Cleanup(s.Close)
			begin(t, s, "running")
			c := begin(t, s, "done")
			require.NoError(t, s.Complete(t.Context(), "done", c.Owner, []byte("result"), time.Hour))
			c = begin(t, s, "expired")
			require.NoError(t, s.Capabilities().Outlive(t.Context(), "expired", c.Owner, []byte("result"), time.Millisecond, time.Hour))
			time.Sleep(2 * time.Millisecond) // it expires
			for _, command := range test.commands {
				require.NoError(t, client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error())
			}
			require.Eventually(t, func() bool {
				err := client.Do(t.Context(), client.B().Set().Key("k").Value("").Build()).Error()
				return err != nil && strings.HasPrefix(err.Error(), test.code)
			}, 10*time.Second, 5*time.Millisecond)
			require.Equal(t, "result", string(meet(t, s, "done", store.Done).Result))
			meet(t, s, "running", store.Running)
			caching := redisstore.New(client, redisstore.Config{ClientSideCache: time.Minute})
			t.Cleanup(caching.Close)
			for _, s := range []*redisstore.Store{s, caching, caching} { // the result is there, and can't be removed
				g := meet(t, s, "expired", store.Done)
				require.True(t, g.Expired)
				require.Empty(t, g.Result)
			}
			_, err := s.Acquire(t.Context(), "new", newClaim())
			require.ErrorContains(t, err, test.code)
		})
	}
}

// TestOtherRefusals: a command that a proxy refuses may have taken effect. The error is returned as it is: a second try would
// meet its own claim, and nobody would release that.
func TestOtherRefusals(t *testing.T) {
	client := openClient(t, backend.StartRedis(t).URL())
	s, b := openOn(t, client, redisstore.Config{})
	b.next = func(command func() rueidis.RedisResult) rueidis.RedisResult {
		command()
		return client.Do(t.Context(), client.B().Eval().Script("return redis.error_reply('ERR upstream failure')").Numkeys(0).Build())
	}
	b.trips.Store(0)
	c := newClaim()
	_, err := s.Acquire(t.Context(), "k", c)
	require.ErrorContains(t, err, "upstream failure")
	require.EqualValues(t, 1, b.trips.Load())
	require.NoError(t, s.Release(t.Context(), "k", c.Owner))
}

// TestNobodyAsksAnyMore: a claim whose caller leaves before the first answer takes nothing over.
func TestNobodyAsksAnyMore(t *testing.T) {
	url := backend.StartRedis(t).URL()
	s, b := openBetween(t, url, redisstore.Config{})
	other := openURL(t, url, redisstore.Config{})
	c := begin(t, other, "k")
	require.NoError(t, other.Abandon(t.Context(), "k", c.Owner))
	ctx, cancel := context.WithCancel(t.Context())
	b.next = func(command func() rueidis.RedisResult) rueidis.RedisResult {
		defer cancel()
		return command()
	}
	b.trips.Store(0)
	claim := newClaim()
	claim.Takeover = true
	_, err := s.Acquire(ctx, "k", claim)
	require.ErrorIs(t, err, context.Canceled)
	s.Close()
	require.EqualValues(t, 1, b.trips.Load())
	meet(t, other, "k", store.Abandoned)
}

// TestClaimsAreNotSentAgain: the client sends commands that read again, and may go to a replica with
// them.
func TestClaimsAreNotSentAgain(t *testing.T) {
	sent := &sentByClaims{Client: openClient(t, backend.StartRedis(t).URL())}
	s := redisstore.New(sent, redisstore.Config{})
	t.Cleanup(s.Close)
	begin(t, s, "k")
	require.Equal(t, []bool{false, false}, sent.retryable)
}

// sentByClaims notes whether the client may send a claim's commands again.
type sentByClaims struct {
	rueidis.Client
	retryable []bool
}

func (s *sentByClaims) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	for _, c := range multi {
		s.retryable = append(s.retryable, c.IsRetryable() || c.IsReadOnly())
	}
	return s.Client.DoMulti(ctx, multi...)
}
