package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/core"
)

// Refuse answers err as a guard does, if it is a [core.Refusal] or holds one: by Config.Refuse, or
// as application/problem+json. It reports whether it has; any other error is the handler's to
// answer. It is for handlers, which can't return what core.Do or sqlstore's RunTx has returned to
// them. The Request that Config.Refuse is shown has no Body, and the route of r.Pattern:
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
