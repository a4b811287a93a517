package core

import (
	"encoding/json"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
)

// DoubleClick is for impatient fingers: the second click on a button that starts
// something. A duplicate is rejected for 45 seconds from the start of the first, and
// in any case while it runs.
//
// Retention must exceed the client's own timeout (40 s, say): a client that has given
// up and tries again later than that runs the operation again. Set OnSuccess to
// [Release] to allow the next one when the first has finished, OnFailure to Release to
// allow it when the first has failed.
func DoubleClick() Policy {
	const window = 45 * time.Second
	return Policy{
		Duplicate: Reject, Lease: window, Retention: window, RetainFrom: FromStart,
		OnSuccess: Keep, OnFailure: Keep,
	}
}

// NoRepeatSubmit is for forms and scripts: within interval (zero: 1 s) from the start
// of a submission the same one is rejected with message (empty: "Please do not submit
// twice."). A submission that was no success may be repeated at once; whether it was
// one is decided by the status and by the "code" member of a JSON body, see
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

// ResubmitWindow is for services on a single machine: a duplicate is rejected while the
// operation runs and for 20 seconds from the end of the run. After a failure it may
// be submitted again at once.
func ResubmitWindow() Policy {
	return Policy{Duplicate: Reject, Retention: 20 * time.Second, RetainFrom: FromEnd}
}

// Exclusive is for what may run many times, but only one at a time: a duplicate is
// rejected while the operation runs. Nothing is kept.
func Exclusive() Policy {
	return Policy{Duplicate: Reject, OnSuccess: Release, OnFailure: Release}
}

// ClientKey is for payments and public APIs: the client sends an Idempotency-Key with
// each operation, and gets the first response again for 24 hours.
func ClientKey() Policy {
	return Policy{Key: Header(Required), Duplicate: Replay, Retention: 24 * time.Hour}
}

// FailedByCode returns a function for [Policy.Failed] for APIs that answer HTTP 200 with
// a code of their own in a JSON body, such as {"code": 50001, "msg": "..."}: a response
// has failed if [FailedByStatus] says so, or if the top-level member called name is an
// integer (also as a string) that is neither 0 nor from 200 to 299. A body without such
// a member, or with a Content-Encoding, leaves it to the status.
func FailedByCode(name string) func(*Response) bool {
	return func(r *Response) bool {
		if FailedByStatus(r) {
			return true
		}
		if !canon.IsJSON(r.Get("Content-Type")) || r.Get("Content-Encoding") != "" {
			return false
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(r.Body, &members) != nil {
			return false
		}
		var code json.Number // also takes a string that is a number
		if json.Unmarshal(members[name], &code) != nil {
			return false
		}
		n, err := code.Int64()
		return err == nil && n != 0 && (n < 200 || n > 299)
	}
}
