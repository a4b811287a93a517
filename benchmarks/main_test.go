package benchmarks

import (
	"testing"

	"github.com/gofiber/fiber/v2/utils"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// One per process, which Fiber's storages would start; it has no end.
	utils.StartTimeStampUpdater()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
