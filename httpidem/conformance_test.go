package httpidem_test

import (
	"flag"
	"net/http"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/backend/nonces"
)

var update = flag.Bool("update", false, "write the transcripts of core/adaptertest anew, as net/http makes them")

func TestConformance(t *testing.T) {
	harness := adaptertest.NetHTTP("net/http", adaptertest.NetHTTPAdapter{
		New:    func(g *core.Guard) func(http.Handler) http.Handler { return httpidem.New(g) },
		Finish: httpidem.Finish(), Replayed: httpidem.Replayed, Verify: httpidem.Verify,
		IssueToken: httpidem.IssueToken, NewToken: httpidem.NewToken,
	})
	harness.User = func(name string) core.UserSource {
		return httpidem.UserFromContext(adaptertest.ContextKey(name))
	}
	harness.Nonces = nonces.OnRedis
	if *update {
		adaptertest.WriteTranscripts(t, harness, "../core/adaptertest/testdata/transcripts.txt", false)
		return
	}
	adaptertest.Run(t, harness)
}
