package profile

import (
	"context"
	"net/http"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// UCP is the policy for the state-changing requests of a business in the Universal Commerce Protocol over REST (Message
// Signatures, Replay Protection). The Idempotency-Key is required, with at least 22 characters. A duplicate gets the first
// response for 48 hours. Bodies are compared byte by byte, and another body under a known key is refused with 409. Where the
// protocol specifies nothing, the policy follows [core.ClientKey]: a duplicate gets 409 in_progress while the first request runs,
// and failures are not stored.
//
// This is the guard that rfc9421.UCP needs: the signed key stops replays.
func UCP() core.Policy {
	return core.Policy{
		Name:    "ucp",
		Key:     core.Header(core.Required, core.CheckKey(func(key string) bool { return len(key) >= 22 })),
		Compare: core.RawBody,
		Digest:  core.SHA256,
		Refuse:  refuseUCP,
		Record:  core.Record{Retention: 48 * time.Hour},
	}
}

type ucpError struct {
	Code    codes.Code `json:"code"`
	Content string     `json:"content"`
}

// refuseUCP makes the body of a protocol error.
func refuseUCP(_ context.Context, r *core.Refusal) *core.Response {
	detail := r.Detail
	if r.Code == codes.KeyInvalid {
		detail = "Idempotency-Key must be sent once, as one string or token of 22 to 255 bytes."
	}
	resp := answer(ucpError{r.Code, detail})
	if r.Code == codes.KeyReused {
		resp.Status = http.StatusConflict
	}
	return resp
}
