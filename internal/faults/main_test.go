package faults_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
	// The tests wait for most of their time: as many at once as there are processors are too few.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	flag.Parse()
	if testing.Short() {
		sqlEngines = sqlEngines[:1]
	}
	var err error
	if programs, err = os.MkdirTemp("", "faults"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(leak.Patient(m), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(programs)
		if code == 0 && *update {
			if err := write(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		os.Exit(code)
	}))
}
