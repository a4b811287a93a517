package benchmarks

import (
	"testing"

	"github.com/gofiber/fiber/v2/utils"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
	// One per process, which Fiber's storages would start; it has no end.
	utils.StartTimeStampUpdater()
	leak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
