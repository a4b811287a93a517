package examples_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/race"
)

// TestQuickstart: the README's program is examples/quickstart, and prints what the README shows.
func TestQuickstart(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("quickstart/main.go")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+string(program)+"```\n")
	_, rest, _ := strings.Cut(string(readme), "```console\n")
	transcript, _, _ := strings.Cut(rest, "```\n")

	const addr = "127.0.0.1:8080"
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a free port
	require.NoError(t, err)
	free := listener.Addr().String()
	require.NoError(t, listener.Close())
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "quickstart")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(program), addr, free, 1)), 0o600))
	out, err := exec.Command("go", "build", fmt.Sprintf("-race=%t", race.Enabled), "-o", binary, file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(binary)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", free)
		return err == nil && conn.Close() == nil
	}, time.Minute, time.Millisecond)

	var printed strings.Builder
	for line := range strings.Lines(transcript) {
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			continue
		}
		command = strings.NewReplacer(addr, free, "curl ", "curl -s ").Replace(command)
		out, err := exec.Command("sh", "-c", command).Output()
		require.NoError(t, err, command)
		printed.WriteString(line + strings.ReplaceAll(string(out), "\r", "") + "\n")
	}
	now := regexp.MustCompile(`Date: .*`)
	id := regexp.MustCompile(`[A-Z2-7]{26}`)
	first := id.FindString(printed.String())
	require.NotEmpty(t, first)
	same := strings.ReplaceAll(printed.String(), first, id.FindString(transcript))
	require.Equal(t, now.ReplaceAllString(transcript, ""), now.ReplaceAllString(same, ""))
}

// What docs/signing.md shows of signclient is what is tested.
func TestSigningPage(t *testing.T) {
	signing, err := os.ReadFile("../docs/signing.md")
	if err != nil {
		t.Fatal(err)
	}
	block := "```console\n$ go run ./examples/signclient\n" + signclientPrints + "```\n"
	if !strings.Contains(string(signing), "\n"+block) {
		t.Errorf("docs/signing.md does not have this block:\n%s", block)
	}
}
