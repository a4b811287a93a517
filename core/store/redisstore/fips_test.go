package redisstore_test

import (
	"bytes"
	"crypto/fips140"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/internal/backend"
)

// Where SHA-1 is forbidden, the server computes the digests of the scripts. The mode is
// chosen when a process starts, so the test starts itself again.
func TestFIPS(t *testing.T) {
	if !fips140.Enabled() {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFIPS$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if bytes.Contains(out, []byte("--- SKIP: TestFIPS")) {
			t.Skipf("%s", out)
		}
		require.Contains(t, string(out), "--- PASS: TestFIPS")
		return
	}
	server := backend.StartRedis(t)
	s := openURL(t, server.URL(), redisstore.Config{})
	c := begin(t, s, "k")
	changed := watch(t, s, "k")
	require.NoError(t, s.Renew(t.Context(), "k", c.Owner, time.Hour))
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, []byte("x"), time.Hour))
	woken(t, changed)
	meet(t, s, "k", store.Done)
	client := openClient(t, server.URL())
	begin(t, s, "running")
	meet(t, s, "running", store.Running)
	require.Equal(t, map[string]int{"set": 1, "pttl": 2, "evalsha": 1, "get": 1},
		during(t, client, func() { meet(t, s, "running", store.Running) }))
}
