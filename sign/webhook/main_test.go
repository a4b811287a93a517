package webhook_test

import (
	"testing"

	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }
