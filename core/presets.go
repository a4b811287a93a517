package core

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
)

// DoubleClick is for impatient fingers: the second click on a button that starts
// something. A duplicate is rejected for 45 seconds from the start of the first, whether that has
// succeeded or failed, and in any case while it runs.
//
// Retention must exceed the client's own timeout (40 s, say): a client that gives up and tries
// again later than that begins the operation anew. Options: OnFailure: [Release] lets
// the next one run as soon as the first has failed; with OnSuccess: Release as well, as soon as it
// has finished. Lease is 45 s too: a crash blocks for as long.
func DoubleClick() Policy {
	const window = 45 * time.Second
	return Policy{
		Duplicate: Reject, Lease: window, Retention: window, RetainFrom: FromStart,
		OnSuccess: Keep, OnFailure: Keep, window: true,
	}
}

// NoRepeatSubmit is for forms and scripts that submit too often: the same submission is rejected
// while it runs, and until interval (zero: 1 s) has passed since its start, with message
// (empty: "Please do not submit twice."). A submission that was no success may be repeated at
// once; whether it was one is decided by the status and by the "code" member of a JSON body, see
// [FailedByCode].
func NoRepeatSubmit(interval time.Duration, message string) Policy {
	if interval == 0 {
		interval = time.Second
	}
	if message == "" {
		message = "Please do not submit twice."
	}
	return Policy{
		Duplicate: Reject, Message: message, Retention: interval, RetainFrom: FromStart,
		OnSuccess: Keep, OnFailure: Release, Failed: FailedByCode("code"),
	}
}

// ResubmitWindow is for services on a single machine, where a form is easily submitted again after
// its answer: a duplicate is rejected while the operation runs and for 20 seconds from the end of
// the run. After a failure it may be submitted again at once.
func ResubmitWindow() Policy {
	return Policy{Duplicate: Reject, Retention: 20 * time.Second, RetainFrom: FromEnd}
}

// Exclusive is for what may run many times, but only one at a time, such as a report or a coupon:
// a duplicate is rejected while the operation runs. Nothing is kept. Only the owner of the claim
// releases it; after a crash the lease has to pass.
func Exclusive() Policy {
	return Policy{Duplicate: Reject, OnSuccess: Release, OnFailure: Release}
}

// ClientKey is for payments and public APIs: the client sends an Idempotency-Key with
// each operation, and gets the first response again for 24 hours. With other parameters the
// key is refused.
func ClientKey() Policy {
	return Policy{Key: Header(Required), Duplicate: Replay, Retention: 24 * time.Hour}
}

// OneShotToken is for forms and public pages, whose callers have no client that makes keys: the page brings a
// token of tokens, which works once. Whoever submits again, reloads or goes back gets the first
// response, for 24 hours. Any answer of 400 and above gives the token back. Set Name: it is the
// purpose to which a token is bound.
func OneShotToken(tokens *Tokens) Policy {
	return Policy{Key: Token(tokens), Duplicate: Replay}
}

// FailedByCode returns a function for [Policy.Failed] for APIs that answer HTTP 200 with
// a code of their own in a JSON body, such as {"code": 50001, "msg": "..."}. A response has failed
// if its status is 400 or above, or if the top-level member called name says so:
//
//   - With successes, every value but these is a failure. They are compared as text: "0" is 0 and
//     "0", "true" is true and "true".
//   - Without, an integer, also one in a string, is a failure unless it is 0 or from 200 to 299.
//     Anything else is none.
//
// A body that is not JSON, has a Content-Encoding, is over [Policy.ResponseLimit], or has no such
// member (or null) leaves it to the status.
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
