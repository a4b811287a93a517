package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program in the README has to compile as it stands there.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "```go\npackage main\n")
	program, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("the README has no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte("package main\n"+program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	formatted, err := exec.Command("gofmt", "-l", file).CombinedOutput()
	if err != nil || len(formatted) > 0 {
		t.Errorf("the program is not formatted: %v %s", err, formatted)
	}
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
