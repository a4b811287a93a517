package examples_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

// TestChain has the program compare its own ledgers, which it does to its last line.
func TestChain(t *testing.T) {
	dir := program.Build(t, ".", "chain")
	orders := "1000"
	if testing.Short() {
		orders = "60"
	}
	for name, flags := range map[string][]string{
		"three steps":                     {},
		"one effect":                      {"-effects", "charge"},
		"three steps, the shop on Redis":  {"-store", stores["redis"](t)},
		"one effect, and no loss or kill": {"-effects", "charge", "-loss", "0", "-kills", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(filepath.Join(dir, "chain"), append(flags, "-orders", orders)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, slices.Contains(flags, "-loss"), strings.Contains(string(out), "the link has lost 0 times"), "%s", out)
			require.Contains(t, string(out), "effects, 0 of them twice\neach order has each of its effects once")
		})
	}
}
