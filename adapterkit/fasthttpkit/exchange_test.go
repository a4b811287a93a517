package fasthttpkit_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/adapterkit/fasthttpkit"
	"github.com/idem-go/idem/core"
)

// A field of a trailer that the handler can see counts as a parameter, if the policy names it. Newer versions of fasthttp keep such
// fields apart: not all of its methods find them.
func TestAFieldOfTheTrailerCounts(t *testing.T) {
	for _, asSent := range []bool{false, true} {
		for _, stream := range []bool{false, true} {
			for _, announced := range []string{"", "Trailer: X-Tenant\r\n", "trailer: x-tenant\r\n"} {
				for _, name := range []string{"X-Tenant", "x-tenant"} {
					t.Run(fmt.Sprintf("as sent %v, streamed %v, %q, %s", asSent, stream, announced, name), func(t *testing.T) {
						guard := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(
							core.Policy{Key: core.Params(core.RequestHeaders("X-Tenant"))})
						place := &fasthttpkit.Place{Route: "/", NamesAsSent: asSent}
						server := &fasthttp.Server{StreamRequestBody: stream, DisableHeaderNamesNormalizing: asSent,
							Handler: guardedAt(guard, place, func(ctx *fasthttp.RequestCtx) error {
								ctx.SetBody(ctx.Request.Header.Peek(name))
								return nil
							})}
						for _, tenant := range []string{"one", "two"} {
							require.Equal(t, tenant, exchangeOne(t, server, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"+
								announced+"\r\n2\r\n{}\r\n0\r\n"+name+": "+tenant+"\r\n\r\n"))
						}
					})
				}
			}
		}
	}
}
