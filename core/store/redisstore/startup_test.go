package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
)

// TestCheckPermissions: missing permissions are found whether or not the user may list its own, and the check changes nothing.
func TestCheckPermissions(t *testing.T) {
	server := backend.StartRedis(t)
	root, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}})
	require.NoError(t, err)
	defer root.Close()
	const enough = "-@all +eval +evalsha +get +set +del +pexpire +pttl +getrange +setrange +publish +ping +info +script|load"
	for rights, lacking := range map[string]string{
		"+@all":                               "",
		"+@all -pexpire":                      "may not run pexpire:",
		"+@all -pexpire -@scripting -publish": "may not run eval, evalsha, pexpire, publish:",
		enough:                                "",
		enough + " resetkeys ~other:*":        "", // which keys there are is not known here
		enough + " -publish":                  "may not run publish:",
		enough + " -set -pexpire":             "may not run set, pexpire:",
		enough + " -pexpire +acl|whoami":      "may not run pexpire:",
		enough + " -info -script -setrange":   "may not run setrange:",
		"-@all +ping":                         "may not run eval, evalsha, get, set, del, pexpire, pttl, getrange, setrange, publish:",
	} {
		words := append([]string{"SETUSER", "idem", "reset", "on", "nopass", "~*", "&*"}, strings.Fields(rights)...)
		require.NoError(t, root.Do(t.Context(), root.B().Arbitrary("ACL").Args(words...).Build()).Error())
		reports := make(chan error, 2)
		s, err := NewURL("redis://idem:x@"+server.Addr(), Config{Warn: func(err error) { reports <- err }})
		require.NoError(t, err, rights)
		if lacking != "" {
			select {
			case err := <-reports:
				require.ErrorContains(t, err, lacking, rights)
			case <-time.After(time.Minute):
				t.Fatalf("nothing is reported: %s", rights)
			}
		}
		user := ask1(t.Context(), s.client, "ACL", "WHOAMI").Text
		for _, user := range []string{user, ""} {
			err := checkPermissions(t.Context(), s.client, server.Addr(), user, false)
			if lacking == "" {
				require.NoError(t, err, rights)
			} else {
				require.ErrorContains(t, err, lacking, rights)
			}
		}
		if rights == enough {
			require.ErrorContains(t, checkPermissions(t.Context(), s.client, server.Addr(), user, true), "may not run wait:")
		}
		s.Close()
		require.Empty(t, reports, rights)
	}
	n, err := root.Do(t.Context(), root.B().Dbsize().Build()).AsInt64()
	require.NoError(t, err)
	require.Zero(t, n)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, checkPermissions(ended, rueidisClient{root}, server.Addr(), "default", false),
		"what can't be looked at is not reported")
}

func TestCheckEviction(t *testing.T) {
	for _, info := range []string{"", "# Memory\r\nused_memory:1\r\n", "maxmemory_policy:noeviction\r\n",
		"maxmemory_policy:\r\nallocator_frag_ratio:1\r\n"} {
		require.NoError(t, checkEviction("host:1", info), "%q", info)
	}
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"} {
		err := checkEviction("host:1", "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:"+policy+"\r\nx:y\r\n")
		require.ErrorContains(t, err, "host:1 is "+policy+":")
	}
}
