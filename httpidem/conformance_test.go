package httpidem_test

import (
	"net/http"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/httpidem"
)

func TestConformance(t *testing.T) { adaptertest.Run(t, harness()) }

func BenchmarkVerify(b *testing.B) { adaptertest.BenchVerify(b, harness()) }

func harness() adaptertest.Harness {
	h := adaptertest.NetHTTP("net/http", adaptertest.NetHTTPAdapter{
		New:    func(g *core.Guard) func(http.Handler) http.Handler { return httpidem.New(g) },
		Finish: httpidem.Finish(), Replayed: httpidem.Replayed, Verify: httpidem.Verify,
		IssueToken: httpidem.IssueToken, NewToken: httpidem.NewToken,
	})
	h.User = func(name string) core.UserSource {
		return httpidem.UserFromContext(adaptertest.ContextKey(name))
	}
	return h
}
