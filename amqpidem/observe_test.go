package amqpidem

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLogEvents(t *testing.T) {
	for _, c := range []struct {
		event Event
		level string
	}{
		{Event{Stage: Connected}, "DEBUG"},
		{Event{Stage: Disconnected, Err: errBroken}, "WARN"},
		{Event{Stage: Settled, Outcome: Done}, "DEBUG"},
		{Event{Stage: Settled, Outcome: Failed, Err: errBroken}, "WARN"},
		{Event{Stage: Settled, Outcome: Deferred, Reason: "in_progress"}, "DEBUG"},
		{Event{Stage: Settled, Outcome: Deferred, Reason: "store_unavailable", Err: errBroken}, "WARN"},
		{Event{Stage: Settled, Outcome: Dead, Reason: "failed"}, "ERROR"},
		{Event{Stage: Unsettled, Outcome: Done}, "WARN"},
	} {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		LogEvents(logger)(t.Context(), c.event)
		assert.Contains(t, log.String(), "level="+c.level+` msg="amqpidem: `+string(c.event.Stage)+`"`)
	}
	var log bytes.Buffer
	LogEvents(slog.New(slog.NewTextHandler(&log, nil)))(t.Context(), Event{
		Stage: Settled, Queue: "orders", MessageID: "7", AppID: "shop", Outcome: Dead, Reason: "failed", Attempt: 4, Err: errBroken,
	})
	for _, text := range []string{"queue=orders", "id=7", "app=shop", "outcome=dead", "reason=failed",
		"attempt=4", `err="the card was declined"`} {
		assert.Contains(t, log.String(), text)
	}
}
