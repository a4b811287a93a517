package measure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/measure"
	"github.com/idem-go/idem/core/store"
)

func TestEachKindIsMeasuredAsItShouldBe(t *testing.T) {
	orders := measure.Labels{Policy: "orders", Method: "POST", Route: "/orders/:id"}
	for kind := core.Kind(1); kind <= core.Operated; kind++ {
		e := core.Event{Kind: kind, Policy: "orders", Route: "POST /orders/:id", Elapsed: time.Minute,
			Waited: time.Second, Code: codes.InProgress}
		want := measure.Measurement{Labels: orders, Outcome: kind.String(), Waited: time.Second}
		switch kind {
		case core.Started:
			want.Running, want.Outcome = 1, ""
		case core.Completed, core.Released, core.RunAbandoned, core.RunLost, core.RunUnfinished:
			late := e
			late.Late = true
			want.Unsettled = -1
			assert.Equal(t, want, measure.Of(late), "%v, late", kind)
			want.Unsettled, want.Running, want.Ran = 0, -1, time.Minute
		case core.Unsettled:
			want.Unsettled, want.Running, want.Ran, want.Outcome = 1, -1, time.Minute, ""
		case core.Refused:
			want.Outcome = "in_progress"
		case core.LeaseLost, core.RenewFailed, core.StoreIsLocal, core.KeyIgnored, core.Operated:
			want = measure.Measurement{}
		}
		assert.Equal(t, want, measure.Of(e), kind)
	}
}

// The labels are as many as there are policies and routes, whatever clients send.
func TestLabels(t *testing.T) {
	for route, want := range map[string]measure.Labels{
		"PATCH /a b":                  {Policy: "p", Method: "PATCH", Route: "/a b"},
		"GET /tokens":                 {Policy: "p", Method: "GET", Route: "/tokens"},
		"CONNECT /":                   {Policy: "p", Method: "CONNECT", Route: "/"},
		"X-" + t.Name() + " /orders":  {Policy: "p", Method: "_OTHER", Route: "/orders"},
		"post /orders":                {Policy: "p", Method: "_OTHER", Route: "/orders"},
		"QUERY /orders":               {Policy: "p", Method: "QUERY", Route: "/orders"},
		"DO /orders":                  {Policy: "p", Method: "_OTHER", Route: "/orders"},
		"DO receipt":                  {Policy: "receipt"},
		"DO whatever the name may be": {Policy: "whatever the name may be"},
	} {
		assert.Equal(t, want, measure.Of(core.Event{Kind: core.Replayed, Policy: want.Policy, Route: route}).Labels, route)
	}
}

func TestErrorType(t *testing.T) {
	for want, errs := range map[string][]error{
		"":        {nil, fmt.Errorf("renew: %w", store.ErrLost), context.Canceled},
		"full":    {fmt.Errorf("acquire: %w", store.ErrFull)},
		"timeout": {fmt.Errorf("acquire: %w", context.DeadlineExceeded)},
		"_OTHER":  {errors.New("connection refused")},
	} {
		for _, err := range errs {
			assert.Equal(t, want, measure.ErrorType(err), "%v", err)
		}
	}
}
