// Package measure makes measurements of the events of an engine, for packages that export them. Packages promidem and otelidem
// do so: they have the same numbers, because both have them from here.
package measure

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
)

// Buckets are the upper bounds of histograms, in seconds: from a call of a store in the same machine to a run that outlasts its
// lease.
var Buckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Labels say what is measured. There are as many as policies and routes: none of them is as a client has sent it.
type Labels struct {
	Policy string
	// Method and Route are those of an HTTP request, such as POST and /orders/:id. Method is "_OTHER" if it is none of RFC 9110,
	// RFC 5789 and RFC 10008. Both are empty for a task.
	Method, Route string
}

// Measurement is what there is to measure about one event. The zero Measurement is nothing.
type Measurement struct {
	Labels Labels
	// Outcome is how a request, or the call of a task, has ended: the name of the kind ("completed", "released", "abandoned",
	// "lost", "unfinished", "replayed", "passed", "unprotected"), or the code of the refusal ("in_progress"). One event of each
	// request to a guard has one, safe methods aside; none has if the process dies during the run or while it is unsettled, or a
	// hook or the store panics before it. A refusal to issue a token has one, too.
	Outcome string
	// Running is what is to be added to the number of runs: 1, -1 or 0. A run that is unsettled runs no longer.
	Running int
	// Unsettled is what is to be added to the number of runs that are unsettled ([core.Unsettled]): 1, -1 or 0.
	Unsettled int
	// Ran is the time from the claim until the handler had returned, if Running is -1.
	Ran time.Duration
	// Waited is how long a request has waited for another run; 0: it has not.
	Waited time.Duration
}

// Of returns what is to be measured about e.
func Of(e core.Event) Measurement {
	m := Measurement{Waited: e.Waited}
	switch e.Kind {
	case core.Started:
		m.Running = 1
	case core.Completed, core.Released, core.RunAbandoned, core.RunLost, core.RunUnfinished:
		if m.Outcome = e.Kind.String(); e.Late {
			m.Unsettled = -1
		} else {
			m.Running, m.Ran = -1, e.Elapsed
		}
	case core.Unsettled:
		m.Running, m.Ran, m.Unsettled = -1, e.Elapsed, 1
	case core.Replayed, core.Passed, core.Unprotected:
		m.Outcome = e.Kind.String()
	case core.Refused:
		m.Outcome = string(e.Code)
	default:
		return Measurement{}
	}
	m.Labels.Policy = e.Policy
	if method, route, _ := strings.Cut(e.Route, " "); method != "DO" || route != e.Policy { // a client may send a DO
		m.Labels.Method, m.Labels.Route = known(method), route
	}
	return m
}

// known returns method, or "_OTHER": clients may make one up for each request.
func known(method string) string {
	switch method {
	case "POST", "PUT", "PATCH", "DELETE", "CONNECT", "GET", "HEAD", "OPTIONS", "TRACE", "QUERY":
		return method
	}
	return "_OTHER"
}

// ErrorType says in a word how a call of a store has failed: "timeout", "full" or "_OTHER". It is empty if the call has not
// failed: [store.ErrLost] is an answer. It is also empty if the caller has given up, which says nothing of the store.
func ErrorType(err error) string {
	switch {
	case err == nil, errors.Is(err, store.ErrLost), errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, store.ErrFull):
		return "full"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "_OTHER"
}
