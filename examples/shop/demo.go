package shop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem/core"
)

// MaxSleep is the longest X-Demo-Sleep; the servers' timeouts are made to bear it.
const MaxSleep = 5 * time.Minute

// maxBytes is the largest X-Demo-Bytes.
const maxBytes = 64 << 20

// demo is what the X-Demo header fields ask of a handler, to try failures by hand.
type demo struct {
	sleep  time.Duration // X-Demo-Sleep: 300ms, before the work
	giveUp bool          // X-Demo-Give-Up: 1, the sleep ends with the context, and nothing is done then
	panics bool          // X-Demo-Panic: 1, before the work
	fail   int           // X-Demo-Error: 422, an error in place of the work
	status int           // X-Demo-Status: 503, the status of the answer to the work
	bytes  int           // X-Demo-Bytes: 2000000, the size of the answer; -1: as it is
}

// parseDemo returns a 400 *Problem for a field that it does not understand.
func parseDemo(header func(string) string) (d demo, err error) {
	d.bytes = -1
	if v := header("X-Demo-Sleep"); v != "" {
		d.sleep, err = time.ParseDuration(v)
		if err != nil || d.sleep < 0 || d.sleep > MaxSleep {
			return d, malformed("X-Demo-Sleep", "a duration from 0s to "+MaxSleep.String())
		}
	}
	var ok bool
	if d.panics, ok = toggle(header("X-Demo-Panic")); !ok {
		return d, malformed("X-Demo-Panic", "0 or 1")
	}
	if d.giveUp, ok = toggle(header("X-Demo-Give-Up")); !ok {
		return d, malformed("X-Demo-Give-Up", "0 or 1")
	}
	if d.fail, ok = number(header("X-Demo-Error"), 0, 400, 599); !ok {
		return d, malformed("X-Demo-Error", "a status from 400 to 599")
	}
	if d.status, ok = number(header("X-Demo-Status"), 0, 200, 599); !ok {
		return d, malformed("X-Demo-Status", "a status from 200 to 599")
	}
	if d.bytes, ok = number(header("X-Demo-Bytes"), -1, 0, maxBytes); !ok {
		return d, malformed("X-Demo-Bytes", fmt.Sprintf("a number from 0 to %d", maxBytes))
	}
	return d, nil
}

func toggle(v string) (set, ok bool) { return v == "1", v == "" || v == "0" || v == "1" }

func number(v string, missing, low, high int) (n int, ok bool) {
	if v == "" {
		return missing, true
	}
	n, err := strconv.Atoi(v)
	return n, err == nil && low <= n && n <= high
}

func malformed(field, want string) *Problem {
	return &Problem{http.StatusBadRequest, field + " must be " + want}
}

// before obeys what comes before the work.
func (d *demo) before(ctx context.Context) error {
	if err := sleep(ctx, d.sleep, d.giveUp); err != nil {
		return err
	}
	if d.panics {
		panic("the client has asked for a panic (X-Demo-Panic)")
	}
	if d.fail != 0 {
		return &Problem{d.fail, "the client has asked for this error (X-Demo-Error)"}
	}
	return nil
}

// errGaveUp says that the context has ended before the work.
var errGaveUp = errors.New("given up")

// sleep stands for slow work. It is given up when the lease is lost: another run may have
// begun, and this one must not go on beside it; and when the shop closes. That the client has gone
// away is no reason to stop: it will come back and ask for the result.
func sleep(ctx context.Context, d time.Duration, giveUp bool) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	switch {
	case giveUp:
		return errGaveUp
	case errors.Is(cause, core.ErrLeaseLost), errors.Is(cause, core.ErrShutdown):
		return &Problem{http.StatusServiceUnavailable, cause.Error()}
	}
	<-timer.C
	return nil
}

// after obeys what changes the answer.
func (d *demo) after(r *Reply) {
	if d.status != 0 {
		r.Status = d.status
	}
	switch {
	case r.Status == http.StatusNoContent || r.Status == http.StatusNotModified:
		r.Body = nil // they never have a body (RFC 9110, section 6.4.1)
	case d.bytes >= len(r.Body):
		// A JSON text may end in any number of spaces.
		r.Body = append(r.Body, bytes.Repeat([]byte(" "), d.bytes-len(r.Body))...)
	case d.bytes >= 0:
		r.Body, r.ContentType = bytes.Repeat([]byte("."), d.bytes), "text/plain"
	}
}
