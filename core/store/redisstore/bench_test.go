package redisstore_test

import (
	"testing"

	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
)

func BenchmarkStandalone(b *testing.B) { storetest.Bench(b, instances(b, backend.Redis(b), openStore)) }
