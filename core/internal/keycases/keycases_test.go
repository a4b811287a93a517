package keycases_test

import (
	"os"
	"os/exec"
	"testing"
)

// The expected keys are those of testdata/keys.py, which was written from the documentation. So a
// mistake in the Go code and the same one in the file would have to be made twice.
func TestKeysOfTheSecondImplementation(t *testing.T) {
	lacking := t.Skipf
	if os.Getenv("IDEM_REQUIRE_BACKENDS") == "1" {
		lacking = t.Fatalf
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		lacking("testdata/keys.py needs python3, 3.9 or later: %v", err)
	}
	if out, err := exec.Command(python, "-c", "import sys; sys.exit(sys.version_info < (3, 9))").CombinedOutput(); err != nil {
		lacking("testdata/keys.py needs Python 3.9 or later: %v\n%s", err, out)
	}
	if out, err := exec.Command(python, "-B", "testdata/keys.py", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
