package amqpidem

import (
	"maps"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The headers that a message gets on its way through the queues of a [Topology]. docs/messages.md promises them, except
// the last three.
const (
	headerAttempts   = "x-idem-attempts"    // how many attempts have failed
	headerError      = "x-idem-error"       // why it is a dead letter: the error of the last attempt, or the refusal
	headerReason     = "x-idem-reason"      // the same in one word
	headerFirstSeen  = "x-idem-first-seen"  // when a handler first got it (RFC 3339, UTC)
	headerExchange   = "x-idem-exchange"    // of the first publishing
	headerRoutingKey = "x-idem-routing-key" // the same
	// headerUserID is the user id that the broker verified when the message was first published. A
	// copy can't have it as a property, for the broker refuses other users' ids.
	headerUserID = "x-idem-user-id"

	headerDeferrals = "x-idem-deferrals" // how often it was deferred since the last attempt
	headerRun       = "x-idem-run"       // core.Run.Attempt of the last attempt
	headerLost      = "x-idem-lost"      // how many deliveries since then have ended with their consumer
)

// Why a message is dead or deferred, besides each codes.Code. docs/messages.md promises the words.
const (
	failed          = "failed"            // the last attempt has failed
	panicked        = "panicked"          // the last attempt has panicked
	exhausted       = "exhausted"         // the last attempts began and never finished
	permanently     = "permanent"         // the function has returned a Permanent error
	noMessageID     = "no_message_id"     // there is none
	headersTooLarge = "headers_too_large" // a copy with the message's headers does not fit into a frame
	interrupted     = "interrupted"       // a shutdown or a lost claim has ended the run
)

// maxError is how much of an error goes into a header.
const maxError = 1024

// history is what a message's headers say about its earlier attempts.
type history struct {
	attempts  int // failed ones
	deferrals int
	run       uint64
	lost      int // deliveries since that run that ended with their consumer: each may have been a run
	firstSeen time.Time
}

// historyOf reads the history of a delivery. It counts only for a message that comes back from a
// delay: one that an operator has published again from the dead letters begins anew. (The number of
// the last run is the store's, and goes on.)
func (h *Handler) historyOf(d *amqp.Delivery) history {
	past := history{run: uint64(number(d.Headers[headerRun])), lost: deliveries(d) - 1, firstSeen: time.Now()}
	deaths, _ := d.Headers["x-death"].([]any) // the latest one first
	if len(deaths) == 0 {
		return past
	}
	death, _ := deaths[0].(amqp.Table)
	if queue, _ := death["queue"].(string); !strings.HasPrefix(queue, h.topology.delayPrefix()) {
		return past
	}
	past.attempts = int(min(number(d.Headers[headerAttempts]), math.MaxInt32))
	past.deferrals = int(min(number(d.Headers[headerDeferrals]), math.MaxInt32))
	past.lost += int(min(number(d.Headers[headerLost]), math.MaxInt32))
	text, _ := d.Headers[headerFirstSeen].(string)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		past.firstSeen = t
	}
	return past
}

// deliveries returns how often the broker has delivered this message since it was last published.
// Quorum queues count that in x-acquired-count since RabbitMQ 4.3, and before in x-delivery-count,
// which since then counts only deliveries that ended with their consumer.
func deliveries(d *amqp.Delivery) int {
	for _, name := range []string{"x-acquired-count", "x-delivery-count"} {
		if _, ok := d.Headers[name]; ok {
			return int(min(number(d.Headers[name]), math.MaxInt32)) + 1
		}
	}
	if d.Redelivered {
		return 2 // at least
	}
	return 1
}

// number reads an integer of any type that a client may have chosen. It returns 0 for a negative one
// and for any other value.
func number(v any) int64 {
	var n int64
	switch v := v.(type) {
	case int8:
		n = int64(v)
	case byte:
		n = int64(v)
	case int16:
		n = int64(v)
	case uint16:
		n = int64(v)
	case int32:
		n = int64(v)
	case uint32:
		n = int64(v)
	case int64:
		n = v
	case uint64:
		n = int64(min(v, math.MaxInt64))
	case int:
		n = int64(v)
	}
	return max(n, 0)
}

// stripped are the headers that a copy must not have. CC and BCC would route it to other queues once
// more; the broker drops a message as a cycle if its x-death names the queue to which it goes back.
var stripped = []string{"CC", "BCC", "x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
	"x-last-death-exchange", "x-last-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count",
	headerError, headerReason}

// copyFor returns a copy of a delivery for another queue, with the headers own and its history. d has
// the exchange and routing key of the first publishing. The copy has no expiration: that was for the
// first delivery.
func copyFor(d *amqp.Delivery, queue string, past history, own amqp.Table) Message {
	headers := make(amqp.Table, len(own)+8)
	maps.Copy(headers, own)
	for _, name := range stripped {
		delete(headers, name)
	}
	headers[headerAttempts] = int64(past.attempts)
	headers[headerDeferrals] = int64(past.deferrals)
	headers[headerLost] = int64(past.lost)
	headers[headerRun] = int64(min(past.run, math.MaxInt64))
	headers[headerFirstSeen] = past.firstSeen.UTC().Format(time.RFC3339)
	headers[headerExchange] = d.Exchange
	headers[headerRoutingKey] = d.RoutingKey
	if d.UserId != "" {
		headers[headerUserID] = d.UserId
	}
	return Message{Key: queue, Publishing: amqp.Publishing{
		Headers:         headers,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		DeliveryMode:    amqp.Persistent,
		Priority:        d.Priority,
		CorrelationId:   d.CorrelationId,
		ReplyTo:         d.ReplyTo,
		MessageId:       d.MessageId,
		Timestamp:       d.Timestamp,
		Type:            d.Type,
		AppId:           d.AppId,
		Body:            d.Body,
	}}
}

// restore gives a delivery that comes back from a delay the exchange and the routing key of its first
// publishing, which functions read. Such a delivery comes by the queue's own name; in one that comes by
// another exchange, the headers are not trusted.
func (h *Handler) restore(d *amqp.Delivery) {
	exchange, ok1 := d.Headers[headerExchange].(string)
	key, ok2 := d.Headers[headerRoutingKey].(string)
	if ok1 && ok2 && d.Exchange == "" && d.RoutingKey == h.topology.Queue {
		d.Exchange, d.RoutingKey = exchange, key
	}
}

// bounded returns an error's text, cut to maxError bytes.
func bounded(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) <= maxError {
		return text
	}
	text = text[:maxError-len("…")]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}
