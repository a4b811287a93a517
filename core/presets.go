package core

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
)

// DoubleClick is for buttons that users click twice. A duplicate is rejected while the first runs, and for 45 seconds from its
// start, whether it has succeeded or failed.
//
// Retention must exceed the client's own timeout (40 s, say): a client that gives up and tries again after Retention begins the
// operation anew. With OnFailure: [Release] the next request runs as soon as the first has failed; with OnSuccess: Release as well,
// as soon as it has ended. Lease is 45 s: a crash blocks the operation for that long.
func DoubleClick() Policy {
	const window = 45 * time.Second
	return Policy{Name: "double-click", Duplicate: Reject(""), Record: Record{
		Lease: window, Retention: window, RetainFromStart: true, OnSuccess: Keep, OnFailure: Keep,
	}}
}

// NoRepeatSubmit is for forms and scripts that submit too often. The same submission is rejected with message (empty: "Please do
// not submit twice.") while the first runs, and until interval (zero: 1 s) has passed since its start. A submission that has failed
// may be repeated at once. The status and the "code" member of a JSON body decide whether it has failed, see [FailedByCode].
func NoRepeatSubmit(interval time.Duration, message string) Policy {
	if interval == 0 {
		interval = time.Second
	}
	if message == "" {
		message = "Please do not submit twice."
	}
	return Policy{Name: "no-repeat-submit", Duplicate: Reject(message), Failed: FailedByCode("code"), Record: Record{
		Retention: interval, RetainFromStart: true, OnSuccess: Keep, OnFailure: Release,
	}}
}

// ResubmitWindow is for services on a single machine, whose forms are easily submitted again after the answer. A duplicate is
// rejected while the operation runs, and for 20 seconds from the end of the run. After a failure the form may be submitted again at
// once.
func ResubmitWindow() Policy {
	return Policy{Name: "resubmit-window", Duplicate: Reject(""), Record: Record{Retention: 20 * time.Second}}
}

// Exclusive is for operations that may run many times, but only one at a time, such as a report. A
// duplicate is rejected while the operation runs. Nothing is kept. After a crash the operation is
// blocked until the lease passes.
func Exclusive() Policy {
	return Policy{Name: "exclusive", Duplicate: Reject(""), Record: Record{OnSuccess: Release, OnFailure: Release}}
}

// ClientKey is for payments and public APIs. The client sends an Idempotency-Key with each operation, and gets the first response
// again for 24 hours. A known key with other parameters is refused. The options are those of [Header].
func ClientKey(options ...HeaderOption) Policy {
	return Policy{Key: Header(Required, options...), Record: Record{Retention: 24 * time.Hour}}
}

// SignedEvent is for receivers of webhooks, inside a verifier (package sign/webhook; see docs/signing.md). Set Name. The key is
// the id of the event that a signed request reports, as for [CallerEvent], in one key space for all guards of that name. So an
// event that comes by two routes runs once, and nobody can make it run again by changing the path, which no sender signs. Give two
// endpoints two names, even if they share a secret. The user is the verified caller: events of two senders are different, even if
// their ids are equal.
//
// Senders take each status but 2xx for a failure, and send the event again for hours or days. So they get this:
//
//   - While the event runs: 503 in_progress with Retry-After. Under [Wait] it waits before.
//   - When it has finished: the stored response if that is a 2xx, otherwise 200 without a body, even if no response is stored, or
//     none any longer ([Policy].RefuseExpired). Both have Idempotent-Replayed.
//   - If it is uncertain ([Uncertain]): 503 with Retry-After.
//   - With changed content: the same as above, because redeliveries differ (Stripe's in pending_webhooks). With [CompareContent]:
//     422 key_reused.
//
// A refusal of the guard is never a 409, which means nothing to senders, nor a 410, after which some senders send no more events.
//
// Each status but 2xx is a failure, and released: the next delivery runs. To drop an event, answer it with a 2xx. Results are kept
// for 96 hours, and abandoned runs are remembered as long: Stripe delivers for three days, and Standard Webhooks recommends 76
// hours.
func SignedEvent(options ...EventOption) Policy {
	k := new(eventKey)
	for _, o := range options {
		o(k)
	}
	return Policy{Key: KeySource{source: k}, User: UserFromCaller()}
}

// OneShotToken is for forms and public pages, whose clients make no keys. The page contains a token issued by tokens, which works
// once. A user who submits again, reloads or goes back gets the first response, for 24 hours. A second click waits for it, up to 10
// seconds, because a browser shows the answer to the last click. After an answer of 400 or above the token may be used again. Set
// Name: it is the purpose to which a token is bound. The options are those of [Token].
func OneShotToken(tokens *Tokens, options ...Option) Policy {
	return Policy{Key: Token(tokens, options...), Duplicate: Wait(10 * time.Second)}
}

// FailedByCode returns a function for [Policy.Failed], for APIs that answer HTTP 200 with a code of their own in a JSON body, such
// as {"code": 50001, "msg": "..."}. A response has failed if its status is 400 or above, or if the top-level member called name
// says so:
//
//   - With successes, every other value is a failure. Values are compared as text: "0" is 0 and "0", "true" is true and "true".
//   - Without successes, an integer, even in a string, is a failure unless it is 0 or from 200 to 299. Any other value is a
//     success.
//
// The status alone decides if the body is not JSON, has a Content-Encoding, exceeds [Policy.ResponseLimit], has no such member, or
// has null there.
func FailedByCode(name string, successes ...string) func(*Response) bool {
	successes = slices.Clone(successes)
	return func(r *Response) bool {
		if FailedByAnyError(r) {
			return true
		}
		if !canon.IsJSON(r.Get("Content-Type")) || r.Get("Content-Encoding") != "" {
			return false
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(r.Body, &members) != nil {
			return false
		}
		text := string(members[name])
		if text == "" || text == "null" {
			return false
		}
		_ = json.Unmarshal(members[name], &text) // a string is compared without its quotes
		if len(successes) > 0 {
			return !slices.Contains(successes, text)
		}
		n, err := strconv.ParseInt(text, 10, 64)
		return errors.Is(err, strconv.ErrRange) || err == nil && n != 0 && (n < 200 || n > 299)
	}
}
