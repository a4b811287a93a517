package profile

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// ACP is the policy for the POST requests of a merchant in the Agentic Commerce Protocol (rfc.agentic_checkout, section 6;
// rfc.delegate_payment, section 5). The Idempotency-Key is required, and is unique to one user and one path. A duplicate gets the
// first response for 24 hours, unless that was a 5xx. While the first request runs, a duplicate gets 409 idempotency_in_flight.
// Another body under a known key is refused with 422 idempotency_conflict; JSON is compared by its meaning. The key is on every
// answer except the one to a panic, which the framework makes.
func ACP() core.Policy {
	return core.Policy{
		Name:   "acp",
		Key:    core.Header(core.Required, core.EchoKey(), core.ScopeKey(pathValues)),
		Digest: core.SHA256,
		Failed: func(r *core.Response) bool { return r.Status >= http.StatusInternalServerError },
		Refuse: refuseACP,
		Record: core.Record{Retention: 24 * time.Hour},
	}
}

// pathValues tells apart the paths of one route: "the same key on different endpoints is treated independently" (6.1).
func pathValues(r *core.Request) string {
	var values []byte
	for _, p := range r.PathParams {
		values = strconv.AppendQuote(values, p.Value)
	}
	return string(values)
}

type acpError struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// refuseACP makes the flat error object of section 3.
func refuseACP(_ context.Context, r *core.Refusal) *core.Response {
	e := acpError{"invalid_request", string(r.Code), r.Detail}
	switch r.Code {
	case codes.KeyMissing:
		e.Code, e.Message = "idempotency_key_required", "Idempotency-Key header is required on all POST requests"
	case codes.KeyReused:
		e.Code, e.Message = "idempotency_conflict", "Idempotency-Key has already been used with a different request body"
	case codes.InProgress:
		e.Code, e.Message = "idempotency_in_flight", "A request with this Idempotency-Key is currently being processed"
	}
	switch {
	case r.Status == http.StatusServiceUnavailable:
		e.Type = "service_unavailable"
	case r.Status >= http.StatusInternalServerError, r.Code == codes.Uncertain, r.Code == codes.ResultUnavailable:
		e.Type = "processing_error"
	}
	resp := answer(e)
	if key, lines := r.Request.Headers.Header(core.DefaultKeyHeader, 0); lines == 1 {
		resp.Header = append(resp.Header, core.Field{Name: core.DefaultKeyHeader, Value: key})
	}
	return resp
}
