package amqpidem

import (
	"os"
	"testing"

	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) {
	if os.Getenv("IDEM_AMQP_WORKER") != "" {
		work() // see worker_test.go
		return
	}
	leak.VerifyTestMain(m)
}
