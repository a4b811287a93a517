package redisstore_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/clienttest"
)

const fingerprint = "c2a36fed15128e9e878583caaafefde9"

func newClaim() store.Claim {
	return store.Claim{Owner: store.NewOwner(), Fingerprint: fingerprint, Lease: time.Hour, Retention: time.Hour}
}

// begin acquires key, which must be free, and returns the claim.
func begin(t *testing.T, s store.Store, key string) store.Claim {
	t.Helper()
	c := newClaim()
	g, err := s.Acquire(t.Context(), key, c)
	require.NoError(t, err)
	require.Equal(t, store.Grant{State: store.Acquired, Attempt: 1}, g)
	return c
}

// meet expects a record in a state under key, attempt 1.
func meet(t *testing.T, s store.Store, key string, state store.State) store.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), key, newClaim())
	require.NoError(t, err)
	require.Equal(t, state, g.State)
	require.EqualValues(t, 1, g.Attempt)
	return g
}

// calls returns how often the server has executed each command, without those with which
// clients connect, and this one.
func calls(t *testing.T, client rueidis.Client) map[string]int {
	t.Helper()
	info, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
	require.NoError(t, err)
	n := map[string]int{}
	for line := range strings.Lines(info) {
		name, rest, is := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		other := slices.Contains([]string{"info", "hello", "ping", "acl"}, name) ||
			strings.HasPrefix(name, "client|") || strings.HasPrefix(name, "acl|")
		if count, _, _ := strings.Cut(rest, ","); is && !other {
			n[name], err = strconv.Atoi(count)
			require.NoError(t, err)
		}
	}
	return n
}

// await waits until the server has executed a command n times.
func await(t *testing.T, client rueidis.Client, name string, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); calls(t, client)[name] != n; time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%s: not called %d times", name, n)
	}
}

// during returns what the server has executed while do ran, without the scripts that a store
// gives it in the background.
func during(t *testing.T, client rueidis.Client, do func()) map[string]int {
	t.Helper()
	before := calls(t, client)
	do()
	after := calls(t, client)
	delete(after, "script|load")
	delete(before, "script|load")
	for name, n := range before {
		if after[name] -= n; after[name] == 0 {
			delete(after, name)
		}
	}
	return after
}

// TestRoundTrips: each call does no more than it must, and in one round trip; two for a claim that meets
// with what is not finished.
func TestRoundTrips(t *testing.T) {
	client := openClient(t, backend.StartRedis(t).URL())
	roundTrips(t, client, &between{Client: client}, map[string]string{
		"claim":                 "1: pttl 1, set 1",
		"meet a running one":    "2: evalsha 1, get 1, pttl 2, set 1",
		"renew":                 "1: evalsha 1, get 1, pexpire 1",
		"checkpoint":            "1: evalsha 1, get 1, set 1",
		"complete":              "1: evalsha 1, get 1, set 1",
		"replay":                "1: pttl 1, set 1",
		"replay again":          "1: get 1",
		"release":               "1: del 1, evalsha 1, get 1",
		"abandon":               "1: evalsha 1, get 1, pexpire 1, set 1",
		"meet an abandoned one": "2: evalsha 1, get 1, pttl 2, set 1",
		"take it over":          "2: evalsha 1, get 1, pexpire 1, pttl 2, set 2",
		"outlive":               "1: evalsha 1, get 1, set 1",
		"replay it":             "2: evalsha 1, get 1, pttl 2, set 1",
		"meet an expired one":   "2: evalsha 1, get 1, pttl 2, set 2",
		"meet it again":         "2: evalsha 1, get 1, pttl 2, set 1",
	})
	t.Run("native", func(t *testing.T) {
		client := openClient(t, backend.StartValkey(t).URL())
		release := "1: delifeq 1"
		if err := client.Do(t.Context(), client.B().Arbitrary("DELIFEQ").Keys("k").Args("v").Build()).Error(); err != nil { // Valkey 8
			release = "1: del 1, evalsha 1, get 1"
		}
		roundTrips(t, client, &between{Client: client}, map[string]string{
			"claim":                 "1: pttl 1, set 1",
			"meet a running one":    "2: evalsha 1, get 1, pttl 2, set 1",
			"renew":                 "1: evalsha 1, get 1, pexpire 1",
			"checkpoint":            "1: evalsha 1, get 1, set 1",
			"complete":              "1: evalsha 1, get 1, set 1", // after a checkpoint
			"replay":                "1: pttl 1, set 1",
			"replay again":          "1: get 1",
			"release":               release,
			"abandon":               "1: evalsha 1, get 1, pexpire 1, set 1",
			"meet an abandoned one": "2: evalsha 1, get 1, pttl 2, set 1",
			"take it over":          "2: evalsha 1, get 1, pexpire 1, pttl 2, set 2",
			"outlive":               "1: set 1",
			"replay it":             "2: evalsha 1, get 1, pttl 2, set 1",
			"meet an expired one":   "2: evalsha 1, get 1, pttl 2, set 2",
			"meet it again":         "2: evalsha 1, get 1, pttl 2, set 1",
		})
	})
	// A server that does not know the command for a claim is asked once.
	client = openClient(t, backend.StartRedis(t).URL())
	roundTrips(t, client, &between{Client: early{Client: client}}, map[string]string{
		"claim":                 "1: evalsha 1, get 1, set 1",
		"meet a running one":    "1: evalsha 1, get 1, pttl 1",
		"renew":                 "1: evalsha 1, get 1, pexpire 1",
		"checkpoint":            "1: evalsha 1, get 1, set 1",
		"complete":              "1: evalsha 1, get 1, set 1",
		"replay":                "1: evalsha 1, get 1, pttl 1",
		"replay again":          "1: get 1",
		"release":               "1: del 1, evalsha 1, get 1",
		"abandon":               "1: evalsha 1, get 1, pexpire 1, set 1",
		"meet an abandoned one": "1: evalsha 1, get 1, pttl 1",
		"take it over":          "1: evalsha 1, get 1, pexpire 1, pttl 1, set 1",
		"outlive":               "1: evalsha 1, get 1, set 1",
		"replay it":             "1: evalsha 1, get 1, pttl 1",
		"meet an expired one":   "1: evalsha 1, get 1, pttl 1, set 1",
		"meet it again":         "1: evalsha 1, get 1, pttl 1",
	})
}

// roundTrips makes each call, and compares how many round trips it takes and what the server executes.
func roundTrips(t *testing.T, client rueidis.Client, b *between, want map[string]string) {
	s := redisstore.New(b, redisstore.Config{})
	t.Cleanup(s.Close)
	ctx := t.Context()
	// The scripts are there before the first call.
	await(t, client, "script|load", 6)
	begin(t, s, "whether the server knows the command is found out")
	var c store.Claim
	took := func(name string, call func()) {
		t.Helper()
		b.trips.Store(0)
		var commands []string
		for command, n := range during(t, client, call) {
			commands = append(commands, fmt.Sprint(command, " ", n))
		}
		slices.Sort(commands)
		require.Equal(t, want[name], fmt.Sprintf("%d: %s", b.trips.Load(), strings.Join(commands, ", ")), name)
	}
	took("claim", func() { c = begin(t, s, "k") })
	took("meet a running one", func() { meet(t, s, "k", store.Running) })
	took("renew", func() { require.NoError(t, s.Renew(ctx, "k", c.Owner, time.Hour)) })
	took("checkpoint", func() { require.NoError(t, s.Capabilities().Checkpoint(ctx, "k", c.Owner, []byte("steps"))) })
	took("complete", func() { require.NoError(t, s.Complete(ctx, "k", c.Owner, []byte("done"), time.Hour)) })
	took("replay", func() { meet(t, s, "k", store.Done) })
	took("replay again", func() { meet(t, s, "k", store.Done) })
	took("claim", func() { c = begin(t, s, "l") })
	took("release", func() { require.NoError(t, s.Release(ctx, "l", c.Owner)) })
	took("claim", func() { c = begin(t, s, "m") })
	took("abandon", func() { require.NoError(t, s.Abandon(ctx, "m", c.Owner)) })
	took("meet an abandoned one", func() { meet(t, s, "m", store.Abandoned) })
	took("take it over", func() {
		c := newClaim()
		c.Takeover = true
		g, err := s.Acquire(ctx, "m", c)
		require.NoError(t, err)
		require.Equal(t, store.Grant{State: store.Acquired, Attempt: 2}, g)
	})
	took("claim", func() { c = begin(t, s, "n") })
	took("outlive", func() {
		require.NoError(t, s.Capabilities().Outlive(ctx, "n", c.Owner, []byte("done"), time.Hour, time.Hour))
	})
	took("replay it", func() { meet(t, s, "n", store.Done) })
	require.NoError(t, client.Do(ctx, client.B().Pexpire().Key("n").Milliseconds(time.Hour.Milliseconds()).Build()).Error())
	took("meet an expired one", func() { require.True(t, meet(t, s, "n", store.Done).Expired) })
	took("meet it again", func() { require.True(t, meet(t, s, "n", store.Done).Expired) })
	record, err := client.Do(ctx, client.B().Get().Key("n").Build()).ToString()
	require.NoError(t, err)
	require.NotContains(t, record, "done", "the result, which the first look has removed")
}

// TestScriptsAreSentAgain: a server that has forgotten the scripts, or never knew them
// (after a failover, or a restart), gets them.
func TestScriptsAreSentAgain(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	for _, key := range []string{"a", "b"} {
		forget := func() { require.NoError(t, client.Do(t.Context(), client.B().ScriptFlush().Build()).Error()) }
		forget()
		c := begin(t, s, key)
		forget()
		require.NoError(t, s.Renew(t.Context(), key, c.Owner, time.Hour))
		forget()
		_, stop, err := s.Capabilities().Watch(t.Context(), key)
		require.NoError(t, err)
		stop()
		forget()
		require.NoError(t, s.Complete(t.Context(), key, c.Owner, nil, time.Hour))
		forget()
		require.ErrorIs(t, s.Release(t.Context(), key, c.Owner), store.ErrLost)
		forget()
		meet(t, s, key, store.Done)
	}
}

// TestLongestSpans: the longest duration must not turn into a moment long past, nor into
// a number that the server refuses.
func TestLongestSpans(t *testing.T) {
	url := backend.Redis(t)
	i := clienttest.Instances(t, url, openStore)(t)
	for _, span := range []time.Duration{1, 100 * 365 * 24 * time.Hour, math.MaxInt64} {
		key := span.String()
		c := newClaim()
		c.Lease, c.Retention = math.MaxInt64, span
		_, err := i.Store.Acquire(t.Context(), key, c)
		require.NoError(t, err)
		require.Greater(t, meet(t, i.Store, key, store.Running).Remaining, 100*365*24*time.Hour)
		require.NoError(t, i.Store.Renew(t.Context(), key, c.Owner, math.MaxInt64))
		require.Greater(t, meet(t, i.Store, key, store.Running).Remaining, 100*365*24*time.Hour)
		require.NoError(t, i.Store.Complete(t.Context(), key, c.Owner, nil, max(span, time.Hour)))
		require.LessOrEqual(t, meet(t, i.Store, key, store.Done).Remaining, max(span, time.Hour))
	}
}

// TestStrangeValues: a foreign value under a key is neither taken for a record nor
// touched.
func TestStrangeValues(t *testing.T) {
	server := backend.StartRedis(t)
	client := openClient(t, server.URL())
	s := redisstore.New(client, redisstore.Config{})
	t.Cleanup(s.Close)
	owner := store.NewOwner()
	for i, value := range []string{"", "x", "R", "R1", "R1;2", "R1;2;3", "R1;2;3;", "Rx;2;0;" + string(owner[:]), "D-1;0;0;",
		"D1;0;-1;", "D1;0;9;short", "Z1;0;0;"} {
		key := strconv.Itoa(i)
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value(value).Build()).Error())
		claim := newClaim()
		claim.Takeover = true
		_, err := s.Acquire(t.Context(), key, claim)
		require.Error(t, err, "%q", value)
		require.ErrorIs(t, s.Complete(t.Context(), key, store.NewOwner(), nil, time.Hour), store.ErrLost, "%q", value)
		require.ErrorIs(t, s.Release(t.Context(), key, store.NewOwner()), store.ErrLost, "%q", value)
		require.ErrorIs(t, s.Abandon(t.Context(), key, store.NewOwner()), store.ErrLost, "%q", value)
		got, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, value, got)
	}
	for i, value := range []string{"Rabbit", "R", "R1", "R;;;", "W1;1", "", "D"} { // Watch touches nothing that is no record
		key := "watched" + strconv.Itoa(i)
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value(value).Build()).Error())
		watch(t, s, key)
		got, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, value, got)
	}
	// A truncated record can't be taken over.
	for i, value := range []string{"R1;3600000;32;short", "W1;3600000;0;", "R1;3600000;0;0123456789abcdef!",
		"R99999999999999999999;3600000;0;0123456789abcdef"} {
		key := "cut" + strconv.Itoa(i)
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value(value).Px(59*time.Minute).Build()).Error())
		claim := store.Claim{Owner: store.NewOwner(), Lease: time.Hour, Takeover: true}
		g, err := s.Acquire(t.Context(), key, claim)
		require.False(t, err == nil && g.State == store.Acquired, "%q was taken over", value)
	}
	require.NoError(t, client.Do(t.Context(), client.B().Rpush().Key("list").Element("x").Build()).Error())
	_, err := s.Acquire(t.Context(), "list", newClaim())
	require.Error(t, err)
	err = s.Renew(t.Context(), "list", owner, time.Hour)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrLost)
}
