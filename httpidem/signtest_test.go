package httpidem_test

import (
	"net/http"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/backend/nonces"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/signtest/guarded"
)

var enrolled = guarded.NetHTTP("net/http", httpidem.Verify, func(g *core.Guard) func(http.Handler) http.Handler { return httpidem.New(g) })

func TestSignatures(t *testing.T) { signtest.Run(t, enrolled.Signatures(nonces.OnRedis)) }

func TestSignedAndGuarded(t *testing.T) { guarded.Run(t, enrolled) }

func BenchmarkVerify(b *testing.B) { guarded.Bench(b, enrolled) }
