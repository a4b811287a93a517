package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/core"
)

// Refuse answers err as a guard does, with Config.Refuse or as application/problem+json, if err is or
// wraps a [core.Refusal]. It reports whether it has answered; any other error is the handler's to
// answer. It is for handlers that call core.Do, or sqlstore's RunTx, whose errors they can't return.
// The Request that Config.Refuse gets has no Body, and the route of r.Pattern:
//
//	if httpidem.Refuse(w, r, err) {
//		return
//	}
func Refuse(w http.ResponseWriter, r *http.Request, err error) bool {
	if err == nil {
		return false
	}
	x := exchangeOf(w, r)
	request := core.Request{Headers: x}
	x.Describe(&request)
	resp := core.RefusalResponse(r.Context(), err, &request)
	if resp == nil {
		return false
	}
	_ = x.Answer(resp) // the client has gone
	return true
}
