package amqpidem_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("IDEM_AMQP_WORKER") != "" {
		work() // see worker_test.go
		return
	}
	goleak.VerifyTestMain(m)
}
