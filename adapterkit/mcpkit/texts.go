package mcpkit

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// The names in _meta.
const (
	// KeyMeta has the key, in the _meta of a call.
	KeyMeta = "io.github.idem-go/idempotency-key"
	// ReplayedMeta is true in the _meta of a replay.
	ReplayedMeta = "io.github.idem-go/replayed"
	// RefusedMeta has the code, in the _meta of a refusal.
	RefusedMeta = "io.github.idem-go/refused"
	// RetryAfterMeta has the number of seconds to wait, in the _meta of a refusal after which another try makes sense.
	RetryAfterMeta = "io.github.idem-go/retry-after"
)

// KeyDescription describes the argument that has the key, in a tool's schema.
const KeyDescription = "Identifies this one action. Choose a random text, such as a UUID, before the first call. " +
	"Whenever you call again for the same action, after a timeout, an error or an unclear answer too, " +
	"send the same text with the same arguments."

// StoredMeta returns what is stored of the _meta of a result: all but what belongs to the call that it came with. It may be meta itself.
func StoredMeta(meta map[string]any) map[string]any {
	var stored map[string]any
	for name, value := range meta {
		switch name {
		case "progressToken", "traceparent", "tracestate", "baggage", ReplayedMeta, RefusedMeta, RetryAfterMeta,
			"io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities",
			"io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/logLevel", "io.modelcontextprotocol/subscriptionId":
			continue
		}
		if stored == nil {
			stored = make(map[string]any, len(meta))
		}
		stored[name] = value
	}
	return stored
}

// Refused returns the _meta and the text of the result that a refusal of a call is: one sentence on which a model can act. It never
// suggests another key: with that, what has been done would be done again.
func (g *Guard) Refused(r *core.Refusal, call *Call) (meta map[string]any, text string) {
	meta = map[string]any{RefusedMeta: string(r.Code)}
	if r.RetryAfter > 0 {
		meta[RetryAfterMeta] = seconds(r.RetryAfter)
	}
	return meta, g.text(r, call)
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func (g *Guard) text(r *core.Refusal, call *Call) string {
	again := "call this tool again with exactly the same arguments and the same idempotency key"
	if call.Rule == Arguments {
		again = "call this tool again with exactly the same arguments"
	}
	when := "later"
	if r.RetryAfter > 0 {
		when = fmt.Sprintf("in %d s", seconds(r.RetryAfter))
	}
	switch r.Code {
	case codes.InProgress:
		return fmt.Sprintf("This call is still running: %s %s to get its result.", again, when)
	case codes.Duplicate:
		return "This call has been made before and is not made twice: do not repeat it."
	case codes.ResultUnavailable:
		return "This call has been made before, and its result is no longer available: do not repeat it, and tell the person."
	case codes.Uncertain:
		return "An earlier attempt at this call did not finish, and it is not known whether it took effect: " +
			"do not repeat it, and tell the person."
	case codes.KeyReused:
		return "This call was not carried out, because its idempotency key belongs to a call with other arguments: " +
			"to get the result of that call, repeat it with its own arguments, else tell the person."
	case codes.KeyMissing:
		if g.config.Argument != "" {
			return fmt.Sprintf("This call was not carried out: it needs the argument %q, "+
				"a random text that you choose once for this action and repeat whenever you call again for it.", g.config.Argument)
		}
		return "This call was not carried out: it needs an idempotency key, which the program that calls the tool must send; " +
			"tell the person."
	case codes.KeyInvalid:
		return "This call was not carried out: its idempotency key must be one text of 1 to 255 bytes without control characters."
	case codes.UserMissing:
		return "This call was not carried out, because the server does not know who calls: tell the person to sign in."
	case codes.NotAuthorized:
		return "This call has been made before, and its result may no longer be shown: do not repeat it, and tell the person."
	case codes.StoreUnavailable, codes.ShuttingDown, codes.RateLimited:
		return fmt.Sprintf("The service is not available just now: %s %s.", again, when)
	case codes.Unfinished:
		return fmt.Sprintf("This call was given up before it had a result: %s %s.", again, when)
	}
	return "This call could not be made safely: do not repeat it, and tell the person."
}
