package amqpidem_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/amqpidem"
)

func TestLogEvents(t *testing.T) {
	for _, c := range []struct {
		event amqpidem.Event
		level string
	}{
		{amqpidem.Event{Stage: amqpidem.Connected}, "DEBUG"},
		{amqpidem.Event{Stage: amqpidem.Disconnected, Err: errBroken}, "WARN"},
		{amqpidem.Event{Stage: amqpidem.Settled, Outcome: amqpidem.Done}, "DEBUG"},
		{amqpidem.Event{Stage: amqpidem.Settled, Outcome: amqpidem.Failed, Err: errBroken}, "WARN"},
		{amqpidem.Event{Stage: amqpidem.Settled, Outcome: amqpidem.Deferred, Reason: "in_progress"}, "DEBUG"},
		{amqpidem.Event{Stage: amqpidem.Settled, Outcome: amqpidem.Deferred, Reason: "store_unavailable", Err: errBroken}, "WARN"},
		{amqpidem.Event{Stage: amqpidem.Settled, Outcome: amqpidem.Dead, Reason: "failed"}, "ERROR"},
		{amqpidem.Event{Stage: amqpidem.Unsettled, Outcome: amqpidem.Done}, "WARN"},
	} {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		amqpidem.LogEvents(logger)(t.Context(), c.event)
		assert.Contains(t, log.String(), "level="+c.level+` msg="amqpidem: `+string(c.event.Stage)+`"`)
	}
	var log bytes.Buffer
	amqpidem.LogEvents(slog.New(slog.NewTextHandler(&log, nil)))(t.Context(), amqpidem.Event{
		Stage: amqpidem.Settled, Queue: "orders", MessageID: "7", AppID: "shop", Outcome: amqpidem.Dead, Reason: "failed", Attempt: 4, Err: errBroken,
	})
	for _, text := range []string{"queue=orders", "id=7", "app=shop", "outcome=dead", "reason=failed", "attempt=4", `err="the card was declined"`} {
		assert.Contains(t, log.String(), text)
	}
}
