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

// What the README shows of the clients in other languages, and of signclient, is what is tested.
func TestReadmeClients(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{"signclient": "```console\n$ go run ./examples/signclient\n" + signclientPrints + "```\n"}
	for file, language := range map[string]string{"sign.mjs": "js", "sign.py": "python", "Sign.java": "java", "sign.sh": "sh"} {
		blocks[file] = "```" + language + "\n" + region(t, "clients/"+file) + "```\n"
	}
	for name, block := range blocks {
		if !strings.Contains(string(readme), "\n"+block) {
			t.Errorf("%s: the README does not have this block:\n%s", name, block)
		}
	}
}

// region returns what stands in a file between the lines "begin README" and "end README", less
// indented by as much as these are.
func region(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var indent string
	inside, ended := false, false
	for line := range strings.Lines(string(text)) {
		mark := strings.TrimLeft(strings.TrimSpace(line), "/# ")
		switch {
		case mark == "begin README":
			indent, inside = line[:len(line)-len(strings.TrimLeft(line, " "))], true
		case mark == "end README":
			inside, ended = false, true
		case inside:
			b.WriteString(strings.TrimPrefix(line, indent))
		}
	}
	if !ended || inside || b.Len() == 0 {
		t.Fatalf("%s has no region for the README", file)
	}
	return b.String()
}
