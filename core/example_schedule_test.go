package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // for machines that know no zones

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store/memstore"
)

// newNightly makes the task. Every process has one, on an engine whose store all of them share.
func newNightly(engine *core.Engine) (*core.Task, error) {
	return engine.Task(core.TaskPolicy{
		Name:      "nightly report",
		Duplicate: core.Reject(""),
		Record: core.Record{
			Retention:         30 * 24 * time.Hour, // much longer than reportDue looks back
			RememberAbandoned: 30 * 24 * time.Hour, // of a run that has died
		},
	})
}

// reportDue makes the reports of the last three days that nobody has made yet. Every process calls it every ten minutes.
// A day begins at midnight in zone, wherever the process runs.
func reportDue(ctx context.Context, nightly *core.Task, now time.Time, zone *time.Location,
	report func(ctx context.Context, day string) error) error {
	var failures []error
	year, month, today := now.Add(-time.Hour).In(zone).Date() // an hour later the day is over by all clocks
	for back := 3; back > 0; back-- {
		day := time.Date(year, month, today-back, 0, 0, 0, 0, time.UTC).Format(time.DateOnly) // UTC: there each day has 24 hours
		_, err := core.Do(ctx, nightly, core.Call{Key: day}, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, report(ctx, day)
		})
		switch {
		case errors.Is(err, codes.Duplicate): // it is made
		case errors.Is(err, codes.InProgress): // another process makes it, or has died making it: the next call finds out
		default:
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// A nightly report is made once for each day, by one of several processes. A day that all of them have missed is made
// up for, and a failed report is made again.
func ExampleEngine_Task() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 3, 28, 3, 0, 0, 0, berlin)
	shared, _ := memstore.New(memstore.Config{Now: func() time.Time { return now }}) // in earnest Redis or a database
	closed := true
	fire := func() {
		fmt.Println(now.Format(time.DateTime))
		for _, process := range []string{"a", "b"} {
			nightly, err := newNightly(core.MustNew(core.Config{Store: shared}))
			if err != nil {
				fmt.Println(err) // all faults of the policy
				return
			}
			err = reportDue(context.Background(), nightly, now, berlin, func(_ context.Context, day string) error {
				if closed && day == "2026-03-27" {
					closed = false
					return errors.New("the warehouse is closed")
				}
				fmt.Println(process, "reports", day)
				return nil
			})
			if err != nil {
				fmt.Println(process, "failed:", err)
			}
		}
	}
	fire()
	now = now.Add(61 * time.Minute)
	fire()
	now = time.Date(2026, 3, 30, 1, 30, 0, 0, berlin) // none has run on the 29th, which had 23 hours
	fire()
	// Output:
	// 2026-03-28 03:00:00
	// a reports 2026-03-25
	// a reports 2026-03-26
	// a failed: the warehouse is closed
	// b reports 2026-03-27
	// 2026-03-28 04:01:00
	// 2026-03-30 01:30:00
	// a reports 2026-03-28
	// a reports 2026-03-29
}
