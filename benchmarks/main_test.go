package benchmarks

import (
	"log"
	"os"
	"testing"

	"github.com/gofiber/fiber/v2/utils"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
	if on := os.Getenv(loadService); on != "" {
		if err := serveLoad(on); err != nil {
			log.Fatal(err)
		}
		return
	}
	// One per process, which Fiber's storages would start; it has no end.
	utils.StartTimeStampUpdater()
	leak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
