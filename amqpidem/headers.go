package amqpidem

import (
	"maps"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The headers that a message gets on its way through the queues of a [Topology].
const (
	// HeaderAttempts is how many attempts at the message have failed.
	HeaderAttempts = "x-idem-attempts"
	// HeaderError is why a message is a dead letter: the error of the last attempt, or the refusal. At
	// most 1024 bytes.
	HeaderError = "x-idem-error"
	// HeaderReason is the [Reason] of a dead letter.
	HeaderReason = "x-idem-reason"
	// HeaderFirstSeen is when a handler was first given the message (RFC 3339, UTC).
	HeaderFirstSeen = "x-idem-first-seen"

	// HeaderExchange and HeaderRoutingKey are where the message was published to; a handler
	// finds them in the delivery's own fields again.
	HeaderExchange   = "x-idem-exchange"
	HeaderRoutingKey = "x-idem-routing-key"
	// HeaderUserID is the user id that the broker has verified when the message was first
	// published. The broker takes no message in the name of another user, so that it can't stay where
	// it was; here it is no more than a header.
	HeaderUserID = "x-idem-user-id"

	headerDeferrals = "x-idem-deferrals" // how often it was put off without an attempt, since the last one
	headerRun       = "x-idem-run"       // core.Run.Attempt of the last attempt
)

// maxError is how much of an error goes into a header.
const maxError = 1024

// history is what a message says of its earlier attempts.
type history struct {
	attempts  int // that have failed
	deferrals int
	run       uint64
	firstSeen time.Time
}

// historyOf reads the history of a delivery. Only that of a message which comes back from a delay
// counts: one that an operator has published again, from the dead letters, begins anew. (The
// number of the last run is the store's, and goes on.)
func (h *Handler) historyOf(d *amqp.Delivery) history {
	past := history{run: uint64(number(d.Headers[headerRun])), firstSeen: time.Now()}
	deaths, _ := d.Headers["x-death"].([]any) // the latest one first
	if len(deaths) == 0 {
		return past
	}
	death, _ := deaths[0].(amqp.Table)
	if queue, _ := death["queue"].(string); !strings.HasPrefix(queue, h.topology.delayPrefix()) {
		return past
	}
	past.attempts = int(min(number(d.Headers[HeaderAttempts]), math.MaxInt32))
	past.deferrals = int(min(number(d.Headers[headerDeferrals]), math.MaxInt32))
	text, _ := d.Headers[HeaderFirstSeen].(string)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		past.firstSeen = t
	}
	return past
}

// deliveries returns how often the broker has handed out this message since it was last published.
// Quorum queues count that: since RabbitMQ 4.3 in x-acquired-count, before in x-delivery-count,
// which then counts only what has ended with its consumer.
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

// number reads an integer of any type that a client may have chosen; what is none, or negative, is 0.
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

// stripped are the headers that belong to one stay in one queue. CC and BCC would route a copy to
// other queues once more, and of a message whose x-death names the queue to which it goes back the
// broker thinks that it goes round in circles.
var stripped = []string{"CC", "BCC", "x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
	"x-last-death-exchange", "x-last-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count",
	HeaderError, HeaderReason}

// again makes a message of a delivery that is to go to another queue, with these headers of its own. d's
// exchange and routing key are those to which it was first published. It does not expire on the way: its
// time to live was for the first delivery.
func again(d *amqp.Delivery, queue string, past history, own amqp.Table) Message {
	headers := make(amqp.Table, len(own)+8)
	maps.Copy(headers, own)
	for _, name := range stripped {
		delete(headers, name)
	}
	headers[HeaderAttempts] = int64(past.attempts)
	headers[headerDeferrals] = int64(past.deferrals)
	headers[headerRun] = int64(min(past.run, math.MaxInt64))
	headers[HeaderFirstSeen] = past.firstSeen.UTC().Format(time.RFC3339)
	headers[HeaderExchange] = d.Exchange
	headers[HeaderRoutingKey] = d.RoutingKey
	if d.UserId != "" {
		headers[HeaderUserID] = d.UserId
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

// restore gives a delivery that has been on its way the exchange and the routing key to which it was
// first published: handlers look at them. It has come by the queue's own name, as what the broker moves
// from a delay does; of what has come by another exchange, the broker knows better than its publisher.
func (h *Handler) restore(d *amqp.Delivery) {
	exchange, ok1 := d.Headers[HeaderExchange].(string)
	key, ok2 := d.Headers[HeaderRoutingKey].(string)
	if ok1 && ok2 && d.Exchange == "" && d.RoutingKey == h.topology.Queue {
		d.Exchange, d.RoutingKey = exchange, key
	}
}

// bounded cuts an error's text to what a header takes.
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
