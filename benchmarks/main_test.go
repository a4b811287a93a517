package benchmarks

import (
	"log"
	"os"
	"testing"

	"github.com/gofiber/fiber/v2/utils"
	utils3 "github.com/gofiber/utils/v2"
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
	// One per process and version, which Fiber's storages would start; they have no end.
	utils.StartTimeStampUpdater()
	utils3.StartTimeStampUpdater()
	leak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
