package core_test

import (
	"crypto/fips140"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// Under FIPS 140, parameters are digested with SHA-256 or not at all. The mode is chosen
// when a process starts, so the test starts itself again.
func TestFIPS(t *testing.T) {
	if !fips140.Enabled() {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFIPS$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestFIPS")
		return
	}
	e := core.MustNew(core.Config{User: core.UserFromSecretHeader("Authorization")})
	_, err := e.Guard(core.Policy{})
	assert.Equal(t, []string{"Policy.Digest"}, faultyFields(t, err))

	var ledger atomic.Int64
	g := e.MustGuard(core.Policy{Digest: core.SHA256})
	for range 2 {
		c := post(`{"n":1}`, &ledger)
		c.header.Set("Authorization", "Bearer x")
		serve(t, g, c)
	}
	assert.EqualValues(t, 1, ledger.Load())

	// A Seal has digests, and a cipher, of its own.
	sealed := sealedBy(newStore(t), allowing(sealUnder("a"))).MustGuard(core.Policy{})
	for _, want := range []string{"attempt 1", "replay"} {
		c := post("--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\ncontent\r\n--b--\r\n", nil)
		c.contentType = "multipart/form-data; boundary=b"
		assert.Equal(t, want, outcome(t, sealed, c))
	}
}
