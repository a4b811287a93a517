//go:build linux || darwin

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMutants(t *testing.T) {
	const script, program = "-- one and two\nif a == b then\n  return 1\nend\n", `package p

func f(n int) (string, error) {
	if n < 2 && g(n) != nil {
		return "", g(n)
	}
	for i := 0; i < n; i++ {
		n += i
	}
	return query("SELECT 1 WHERE a <= b AND c"), nil
}
`
	found := func(name, text string) (changes, ranks []string) {
		t.Chdir(t.TempDir())
		require.NoError(t, os.WriteFile("../"+name, []byte(text), 0o600))
		mutants, err := mutantsOf(name, "seed", map[string]int{})
		require.NoError(t, err)
		for _, m := range mutants {
			changes, ranks = append(changes, m.name[len(name):]), append(ranks, m.rank)
		}
		return changes, ranks
	}
	changes, ranks := found("p.go", program)
	require.Equal(t, []string{":4:5: n < 2 && g(n) != nil -> !(n < 2 && g(n) != nil)", ":4:11: && -> ||",
		":4:7: < -> <=", ":4:9: 2 -> (2 + 1)",
		":4:19: != -> ==", ":5:3: return \"\", g(n) -> nothing", ":5:14: g(n) -> zeroOf(g(n))", ":7:11: 0 -> (0 + 1)",
		":7:16: < -> <=", ":8:3: n += i -> nothing",
		`:10:9: query("SELECT 1 WHERE a <= b AND c") -> zeroOf(query("SELECT 1 WHERE a <= b AND c"))`,
		":10:33: <= -> <", ":10:38: AND -> OR"}, changes)
	_, moved := found("p.go", "// a new line\n"+program)
	require.Equal(t, ranks, moved)
	changes, _ = found("p.lua", script)
	require.Equal(t, []string{":3:3: return 1 -> nothing", ":2:6: == -> ~="}, changes)
}

// Packages embed files of other kinds, too, and cmd/idem a file of Go.
func TestRooms(t *testing.T) {
	t.Chdir("../..")
	rooms, err := findRooms(t.Context(), "seed")
	require.NoError(t, err)
	kinds, names := map[string]bool{}, map[string]bool{}
	for _, r := range rooms {
		for _, m := range r.mutants {
			kinds[filepath.Ext(m.file)] = true
			require.False(t, names[m.name], m.name)
			names[m.name] = true
		}
	}
	require.Equal(t, map[string]bool{".go": true, ".lua": true}, kinds)
}
