package shop

import (
	"bytes"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
)

func parse(args ...string) (Options, string, error) {
	var said bytes.Buffer
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	flags.SetOutput(&said)
	o, err := ParseOptions(flags, args)
	return o, said.String(), err
}

func TestOptions(t *testing.T) {
	o, _, err := parse()
	require.NoError(t, err)
	require.Equal(t, Options{Addr: "127.0.0.1:8080", Store: "memory", Lease: 30 * time.Second,
		Secret: "0123456789abcdef0123456789abcdef"}, o)

	o, _, err = parse("-addr", ":0", "-store", "sqlite:shop.db", "-lease", "1s", "-retain", "2m",
		"-secret", "s", "-admin", "a:b", "-metrics", ":1")
	require.NoError(t, err)
	require.Equal(t, Options{Addr: ":0", Store: "sqlite:shop.db", Lease: time.Second, Retain: 2 * time.Minute,
		Secret: "s", Admin: "a:b", Metrics: ":1"}, o)
}

func TestStoresByName(t *testing.T) {
	for _, name := range []string{
		"memory", "sqlite:shop.db", "redis://localhost", "rediss://localhost", "unix:///run/redis.sock",
		"postgres://localhost/shop", "postgresql://localhost/shop", "mysql://root@localhost/shop",
	} {
		o, said, err := parse("-store", name)
		require.NoError(t, err, said)
		require.Equal(t, name, o.Store)
	}
	for _, name := range []string{"", "redsi://:hunter2@localhost", "carrier-pigeon:", "Memory", "sqlite:", "redis:",
		"redis://", "localhost:6379", "shop.db"} {
		_, said, err := parse("-store", name)
		require.Error(t, err, name)
		require.Contains(t, said, "-store is memory, sqlite:FILE, redis://…, postgres://… or mysql://…")
		require.NotContains(t, said, "hunter2")
	}
}

func TestOpenStore(t *testing.T) {
	for _, name := range []string{"memory", "sqlite:" + t.TempDir() + "/shop.db"} {
		s, err := OpenStore(Options{Store: name})
		require.NoError(t, err)
		claim := store.Claim{Owner: store.NewOwner(), Lease: time.Minute}
		g, err := s.Acquire(t.Context(), "k", claim)
		require.NoError(t, err)
		require.Equal(t, store.Acquired, g.State)
		s.Close()
	}
	for _, name := range []string{"redis://127.0.0.1:1", "postgres://nobody@127.0.0.1:1/x", "mysql://nobody@127.0.0.1:1/x",
		"sqlite:/no/such/folder/shop.db"} {
		_, err := OpenStore(Options{Store: name})
		require.Error(t, err, name)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-lease", "0"}, {"-lease", "-1s"}, {"-retain", "0s"}, {"-retain", "never"}} {
		_, said, err := parse(args...)
		require.Error(t, err, args)
		require.Contains(t, said, args[len(args)-1][:1])
		require.Contains(t, said, "-addr", "usage is shown")
	}
}

func TestGuards(t *testing.T) {
	o, _, err := parse()
	require.NoError(t, err)
	g, err := NewGuards(o, &Store{})
	require.NoError(t, err)
	for _, guard := range []*core.Guard{g.Orders, g.Pay, g.Payments, g.Transfers, g.Charges, g.Likes, g.Coupons, g.Avatars,
		g.Webhooks, g.Registrations, g.Checkout} {
		require.NotNil(t, guard)
	}
	require.NotNil(t, g.Signed)

	_, err = NewGuards(Options{Lease: time.Nanosecond, Retain: -time.Hour, Secret: "hush"}, &Store{})
	require.ErrorContains(t, err, "Lease")
	require.ErrorContains(t, err, "Retention")
	require.ErrorContains(t, err, "-secret: sign: secret: has 4 bytes")
	require.NotContains(t, err.Error(), "hush")
}

func TestWelcomeNamesTheAddress(t *testing.T) {
	var b bytes.Buffer
	welcome(&b, "http://127.0.0.1:4711")
	line, err := b.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "listening on http://127.0.0.1:4711\n", line)
	rest, err := io.ReadAll(&b)
	require.NoError(t, err)
	require.Equal(t, 3, bytes.Count(rest, []byte("curl -i http://127.0.0.1:4711/")))
	require.Contains(t, string(rest), "\ngo run ./examples/signclient -url http://127.0.0.1:4711/webhooks\n")
}
