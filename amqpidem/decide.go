package amqpidem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// decision is what is to be done with a delivery. [run.decide] makes it, and [Handler.settle] acts on it.
type decision struct {
	outcome Outcome
	reason  string
	attempt int           // 0: none is counted
	delay   time.Duration // before it comes back
	queue   string        // of the copy that is to be published before the delivery is acknowledged; empty: there is none
	past    history       // for the headers of that
	err     error
}

// decide decides about a delivery by what has come of its run, and by nothing else. It works on a copy of that.
func (r run) decide() decision {
	ran, permanent := r.attempt > 0, errors.As(r.err, new(*permanentError))
	// The codes of what passes by itself. They also come from an operation within the function (sqlstore's RunTx): that is no
	// failure of its own.
	passing := r.code(codes.InProgress, codes.StoreUnavailable, codes.ShuttingDown)
	if ran && passing == "" {
		passing = r.code(codes.Unfinished)
	}
	var refusal *core.Refusal
	switch {
	case r.err == nil && r.replayed, !ran && r.code(codes.Duplicate, codes.ResultUnavailable) != "":
		return decision{outcome: Duplicate}
	case r.err == nil:
		return decision{outcome: Done, attempt: r.attempt}
	case passing != "" && !permanent:
		return r.deferred(string(passing))
	case ran && (errors.Is(r.ended, core.ErrLeaseLost) || errors.Is(r.ended, core.ErrShutdown) || errors.Is(r.ended, context.Canceled)):
		return r.deferred(interrupted)
	case errors.Is(r.err, errNoID):
		return r.dead(noMessageID)
	case !ran && errors.As(r.err, &refusal):
		return r.dead(string(refusal.Code))
	}

	// It is a failure.
	if !ran { // a hook of the engine has panicked
		r.attempt = r.past.attempts + 1
	}
	r.past.attempts, r.past.deferrals = r.attempt, 0
	switch last := r.attempt >= r.handler.config.Attempts; {
	case errors.Is(r.err, errExhausted):
		r.past.attempts = r.handler.config.Attempts // the last of which has not come back
		return r.dead(exhausted)
	case permanent:
		return r.dead(permanently)
	case last && errors.As(r.err, new(*panicError)):
		return r.dead(panicked)
	case last:
		return r.dead(failed)
	}
	return r.back(Failed, "", r.attempt-1)
}

// code returns which of the codes the error has, or none.
func (r *run) code(codes ...codes.Code) codes.Code {
	for _, c := range codes {
		if errors.Is(r.err, c) {
			return c
		}
	}
	return ""
}

// deferred decides that there was no attempt, or that it does not count.
func (r *run) deferred(reason string) decision {
	r.attempt = 0
	r.past.deferrals++
	return r.back(Deferred, reason, r.past.deferrals-1)
}

// back decides that the message comes back after the i-th delay.
func (r *run) back(outcome Outcome, reason string, i int) decision {
	t := r.handler.topology
	delay := t.Delays[min(max(i, 0), len(t.Delays)-1)]
	return decision{outcome, reason, r.attempt, delay, t.delayQueue(delay), r.past, r.err}
}

func (r *run) dead(reason string) decision {
	return decision{Dead, reason, r.attempt, 0, r.handler.topology.DeadLetters(), r.past, r.err}
}
