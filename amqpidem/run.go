package amqpidem

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/core"
)

// run is a delivery, and what has come of the function for it.
type run struct {
	handler  *Handler
	delivery *amqp.Delivery
	began    time.Time
	past     history
	attempt  int   // the number; 0: the function was not called
	replayed bool  // it has succeeded before
	ended    error // why its context had ended when it returned, if it had
	err      error
}

var (
	errNoID      = errors.New("amqpidem: the message has no id")
	errExhausted = errors.New("amqpidem: no attempts left: earlier ones began and never finished")
)

// panicError is the error of an attempt whose [Func] has panicked. Its text goes into a header, without the stack.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// read reads what a delivery says about itself.
func (h *Handler) read(d *amqp.Delivery) *run {
	r := &run{handler: h, delivery: d, began: time.Now(), past: h.historyOf(d)}
	h.restore(d)
	return r
}

// do runs the function if it may run, and notes what has come of it. It settles nothing. A panic of the function, or
// runtime.Goexit, is noted as an error; Goexit still ends the goroutine.
func (r *run) do(ctx context.Context) {
	call, err := r.handler.call(r.delivery)
	if err != nil {
		r.err = err
		return
	}
	returned := false
	defer func() {
		p := recover()
		if p == nil && !returned {
			p = "runtime.Goexit"
		}
		if p != nil {
			r.err = &panicError{p, debug.Stack()}
		}
	}()
	if call.Key == "" {
		_, r.err = r.once(ctx)
	} else {
		var result core.Result[[]byte]
		result, r.err = core.Do(ctx, r.handler.config.Task, call, r.once)
		r.replayed = result.Replayed
	}
	returned = true
}

// call returns the operation of a message. Its Key is empty if the message runs unprotected.
func (h *Handler) call(d *amqp.Delivery) (core.Call, error) {
	if d.MessageId == "" && h.config.WithoutID == DeadLetter {
		return core.Call{}, errNoID
	}
	if d.MessageId == "" && h.config.WithoutID == Pass {
		return core.Call{}, nil
	}
	sum := sha256.Sum256(d.Body)
	call := core.Call{User: d.AppId, Key: d.MessageId, Fingerprint: hex.EncodeToString(sum[:])}
	switch {
	case d.MessageId == "":
		call.Key = "#" + h.config.Task.Digest(d.Body)
	case strings.HasPrefix(d.MessageId, "#"): // no id can read as a digest
		call.Key = "#" + d.MessageId
	}
	return call, nil
}

// once calls the function. The operation is claimed, unless it runs unprotected.
func (r *run) once(ctx context.Context) ([]byte, error) {
	h, number := r.handler, core.RunFrom(ctx).Attempt()
	r.attempt = h.attemptNumber(r.past, r.delivery, number)
	r.past.run, r.past.lost = number, 0
	if r.attempt > h.config.Attempts {
		return nil, errExhausted
	}
	own := *r.delivery
	own.Acknowledger = nil // not the function's to settle
	attempt := Attempt{r.attempt, h.config.Attempts, deliveries(&own), r.past.firstSeen}
	err := h.fn(context.WithValue(ctx, attemptKey{}, attempt), &own)
	r.ended = context.Cause(ctx)
	return nil, err
}

// attemptNumber returns the number of the attempt whose run has the number run in the store. That
// number also counts runs that never came back, which the headers do not; but it begins again at 1
// after a failed first run. It may also count runs of earlier publishings, which the headers of this one
// need not tell: so at most one run is counted for each delivery that was lost, where their number is known.
func (h *Handler) attemptNumber(past history, d *amqp.Delivery, run uint64) int {
	if run > past.run {
		run -= past.run
	}
	if !d.Redelivered || h.topology.Type == Quorum {
		run = min(run, uint64(past.lost)+1)
	}
	return past.attempts + int(min(run, 1<<30))
}
