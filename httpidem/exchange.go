package httpidem

import (
	"net/http"
	"sync"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

type middleware struct {
	guard    *core.Guard
	route    func(*http.Request) (string, []adapter.Pair)
	patterns patterns
}

// exchange is one request and its response. Exchanges are pooled.
type exchange struct {
	adapterkit.Exchange
	middleware *middleware
	w          http.ResponseWriter
	r          *http.Request
	next       http.Handler
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// plain belongs to no guard. It remembers the patterns that it has seen.
var plain middleware

// exchangeOf returns an exchange from the pool. Only New puts it back.
func exchangeOf(m *middleware, w http.ResponseWriter, r *http.Request) *exchange {
	x := exchanges.Get().(*exchange)
	x.Start(x, r)
	x.middleware, x.w, x.r = m, w, r
	return x
}

func (x *exchange) Describe(r *adapter.Request) {
	x.Exchange.Describe(r)
	r.Native = x.r
	if x.middleware.route == nil {
		x.middleware.patterns.describe(x.r, r)
		return
	}
	pattern, params := x.middleware.route(x.r)
	if pattern == "" {
		r.Route, r.Unmatched = adapterkit.HostOf(x.r)+adapterkit.SentPath(x.r), true
		return
	}
	rt := parsePattern(pattern, false)
	r.Route = rt.spelling
	if rt.host == "" {
		r.Route = adapterkit.HostOf(x.r) + r.Route
	}
	r.PathParams = append(r.PathParams, params...)
	if last := len(r.PathParams) - 1; rt.tail && last >= 0 {
		if tail, ok := adapterkit.Tail(adapterkit.EscapedPath(x.r.URL), r.PathParams[last].Value); ok {
			r.PathParams[last].Value = adapterkit.Rest(tail)
		}
	}
}

func (x *exchange) Writer() http.ResponseWriter     { return x.w }
func (x *exchange) SetWriter(w http.ResponseWriter) { x.w = w }

func (x *exchange) Next(r *http.Request) error {
	defer adapterkit.Adopt(x.r, r, r, r.Context())
	x.next.ServeHTTP(x.w, r)
	return nil
}
