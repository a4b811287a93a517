package examples_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

func wrongOptionsEndTheProgramWithCode2(t *testing.T, dir string) {
	for _, name := range program.Names {
		const secret = "short, and a secret"
		for _, wrong := range []struct{ flag, value, says string }{
			{"-secret", secret, "-secret: sign: secret: has 19 bytes; at least 32 are needed"},
			{"-store", "carrier-pigeon:", "-store is memory, sqlite:FILE, redis://…, postgres://… or mysql://…"},
			{"-admin", "ana", "-admin is user:password"},
			{"-lease", "1ns", "Policy.Lease"},
			{"-store=memory", "extra", `unexpected argument "extra"`},
		} {
			out, err := exec.Command(filepath.Join(dir, name), wrong.flag, wrong.value).CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s %s", name, wrong.flag)
			require.Equal(t, 2, exit.ExitCode(), name)
			require.Contains(t, string(out), wrong.says, name)
			require.NotContains(t, string(out), secret, name)
		}
	}
}
