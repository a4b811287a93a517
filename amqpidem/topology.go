package amqpidem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Topology is a queue to consume from, and the queues that belong to it: one for each delay
// ([Topology.Queues]), and one for dead letters ([Topology.DeadLetters]). All of them are
// durable.
//
//	exchange ── key ──> orders ──> handler ── done, duplicate ──> ack
//	                      ^           │
//	                      │           ├─ failed, running elsewhere ──> orders.delay.1000, .5000, …
//	                      │           │                                  │ after its time to live
//	                      └───────────│──────────────────────────────────┘
//	                                  └─ N attempts, key_reused, … ──> orders.dead
type Topology struct {
	// Queue is the name of the queue to consume from. It is required.
	Queue string

	// Type is the queue's type. Zero: [Quorum].
	Type QueueType

	// Satellites is the type of the delay and dead-letter queues: [Quorum] (zero) or [Classic]. A
	// classic delay queue moves its messages at most once: a broker that is killed may lose one. Use
	// Classic with brokers before 3.10, whose quorum queues have no time to live, or where a quorum
	// queue for each delay costs too much.
	Satellites QueueType

	// Delays are how long a message waits after its first failure, its second, and so on; the last
	// delay is repeated. They must increase, and be whole milliseconds. Nil means
	// 1 s, 5 s, 30 s, 2 min and 10 min.
	Delays []time.Duration

	// DeliveryLimit is the number of redeliveries after which the broker itself dead-letters a message
	// of a quorum queue. It counts deliveries that end with a consumer's connection, even if no handler
	// had begun the message. Zero means 20, the default of RabbitMQ 4; negative means no limit.
	DeliveryLimit int

	// Bindings bind the queue to existing exchanges.
	Bindings []Binding
}

// Binding is one binding of a queue to an exchange.
type Binding struct{ Exchange, Key string }

// QueueType is the type of a queue.
type QueueType uint8

const (
	// Quorum is a replicated queue (RabbitMQ 3.8; with time to live, 3.10). It is the zero value.
	Quorum QueueType = iota
	// Classic is a queue of one node.
	Classic
	// Foreign is a queue that is declared elsewhere. It must exist; its type and arguments are not
	// checked.
	Foreign
)

const defaultDeliveryLimit = 20

// delayQueue returns the name of the queue in which messages wait for delay.
func (t Topology) delayQueue(delay time.Duration) string {
	return t.delayPrefix() + strconv.FormatInt(delay.Milliseconds(), 10)
}

func (t Topology) delayPrefix() string { return t.Queue + ".delay." }

// DeadLetters returns the name of the queue for dead letters.
func (t Topology) DeadLetters() string { return t.Queue + ".dead" }

// Queues returns the names of all queues of t, to monitor or delete them: Queue, the delay queues in the order of Delays,
// and the dead-letter queue.
func (t Topology) Queues() []string {
	t, _ = t.check()
	names := []string{t.Queue}
	for _, d := range t.Delays {
		names = append(names, t.delayQueue(d))
	}
	return append(names, t.DeadLetters())
}

// check returns the faults of t, and t with defaults filled in.
func (t Topology) check() (Topology, error) {
	f := faults{of: "Topology"}
	if t.Delays = slices.Clone(t.Delays); len(t.Delays) == 0 {
		t.Delays = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
	}
	f.addIf(t.Queue == "", "Queue", "is empty")
	// The broker allows 255 bytes, and the longest name is that of a delay.
	longest := t.delayQueue(t.Delays[len(t.Delays)-1])
	f.addIf(len(longest) > 255, "Queue", "is too long: the name %q has %d bytes; 255 are allowed", longest, len(longest))
	f.addIf(t.Type > Foreign, "Type", "is unknown: %d", t.Type)
	f.addIf(t.Satellites > Classic, "Satellites", "must be Quorum or Classic")
	f.addIf(t.DeliveryLimit != 0 && t.Type != Quorum, "DeliveryLimit",
		"has no effect: only a quorum queue that is declared here has one; remove it")
	for i, d := range t.Delays {
		f.addIf(d < time.Millisecond || d%time.Millisecond != 0, "Delays", "%v is not a whole number of milliseconds", d)
		f.addIf(i > 0 && d <= t.Delays[i-1], "Delays", "%v is not longer than the delay before it, %v", d, t.Delays[max(i-1, 0)])
	}
	if t.DeliveryLimit == 0 && t.Type == Quorum {
		t.DeliveryLimit = defaultDeliveryLimit
	}
	return t, errors.Join(f.errs...)
}

// declaration is a queue with its arguments. Without args it only has to exist.
type declaration struct {
	name string
	args amqp.Table
}

// declarations returns the declarations of all queues, for a broker of that major version.
func (t Topology) declarations(major int) []declaration {
	// At-least-once dead-lettering needs reject-publish (RabbitMQ, "Quorum Queues", Dead Lettering).
	deadLettering := func(q QueueType, to string) amqp.Table {
		args := amqp.Table{"x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
		if q == Quorum {
			args["x-queue-type"] = "quorum"
			args["x-dead-letter-strategy"] = "at-least-once"
			args["x-overflow"] = "reject-publish"
		}
		return args
	}
	dead := amqp.Table{"x-queue-type": "quorum"}
	if t.Satellites == Classic {
		dead["x-queue-type"] = "classic"
	}
	// A queue comes before those that lead to it.
	all := []declaration{{t.DeadLetters(), dead}}
	work := declaration{name: t.Queue}
	if t.Type != Foreign {
		work.args = deadLettering(t.Type, t.DeadLetters())
	}
	if t.Type == Quorum && t.DeliveryLimit > 0 {
		work.args["x-delivery-limit"] = int64(t.DeliveryLimit)
	}
	if t.Type == Quorum && t.DeliveryLimit < 0 && major >= 4 {
		work.args["x-delivery-limit"] = int64(-1) // none; RabbitMQ 3 has none by default, and takes it for less than one
	}
	all = append(all, work)
	for _, d := range t.Delays {
		args := deadLettering(t.Satellites, t.Queue)
		args["x-message-ttl"] = d.Milliseconds()
		all = append(all, declaration{t.delayQueue(d), args})
	}
	return all
}

// Declare declares the queues and bindings. It changes no existing queue. It returns a
// [*TopologyError] if a queue exists with other arguments, or may not be declared; any other error
// is the connection's, or a fault of t.
func (t Topology) Declare(conn *amqp.Connection) error { return t.establish(conn, false) }

// Check checks the queues as Declare does, but makes none that is missing: that is a
// [*TopologyError]. It does not check bindings, for which the protocol has no request. Without the
// permission to configure a queue, it only checks that the queue exists.
//
// It also publishes a message that no queue takes, to find out whether copies may be published: without the
// right to do so, it returns a [*TopologyError]. A broker that blocks publishers does not answer that for 2 s: then
// Check says nothing of it, and the broker does not read from conn until it has room. Use a connection of its own, of
// the user that publishes copies.
func (t Topology) Check(conn *amqp.Connection) error {
	if err := t.establish(conn, true); err != nil {
		return err
	}
	return t.mayPublish(conn)
}

func (t Topology) establish(conn *amqp.Connection, checkOnly bool) error {
	t, err := t.check()
	if err != nil {
		return err
	}
	for _, q := range t.declarations(majorVersion(conn)) {
		if checkOnly || q.args == nil {
			if err := exists(conn, q.name); err != nil {
				return err
			}
		}
		if q.args == nil {
			continue
		}
		// The broker compares the declaration with an existing queue, and does not change that.
		err := onChannel(conn, q.name, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q.name, true, false, false, false, q.args)
			return err
		})
		var refused *amqp.Error
		if checkOnly && errors.As(err, &refused) && refused.Code == amqp.AccessRefused {
			continue
		}
		if err != nil {
			return err
		}
	}
	if checkOnly {
		return nil
	}
	for _, b := range t.Bindings {
		if err := onChannel(conn, t.Queue, func(ch *amqp.Channel) error {
			return ch.QueueBind(t.Queue, b.Key, b.Exchange, false, nil)
		}); err != nil {
			return err
		}
	}
	return nil
}

// exists checks that there is a queue. That takes no permission.
func exists(conn *amqp.Connection, queue string) error {
	return onChannel(conn, queue, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
}

// probeLimit is how long a broker may take to say whether it lets a message be published.
const probeLimit = 2 * time.Second

// mayPublish checks that copies may be published on conn: to the default exchange. It publishes a message that no
// queue takes.
func (t Topology) mayPublish(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirm, err := ch.PublishWithDeferredConfirm("", "idem-check-"+rand.Text(), false, false, amqp.Publishing{})
	if err != nil {
		return err
	}
	select {
	case <-confirm.Done():
	case <-time.After(probeLimit): // it blocks publishers, and would not close the channel, either
		return nil
	}
	if confirm.Acked() {
		go ch.Close() // which waits for as long as the broker blocks publishers
		return nil
	}
	e := <-closed
	if e == nil {
		return amqp.ErrClosed
	}
	if e.Code == amqp.AccessRefused {
		return &TopologyError{Queue: t.DeadLetters(), right: "write", err: e}
	}
	return e
}

// check checks that p can publish copies to the queues of t. It does so on a connection of its own: a broker that
// blocks publishers would keep the answer, and other messages, waiting. A broker that can't be reached refuses
// nothing: what needs no copy is handled meanwhile.
func (p *Publisher) check(ctx context.Context, t Topology) error {
	conn, err := p.config.Dial(ctx, p.config.URL)
	var e *amqp.Error
	if errors.As(err, &e) && (e == amqp.ErrCredentials || e == amqp.ErrVhost) {
		return fmt.Errorf("amqpidem: Config.Publisher can't connect: %w", &TopologyError{Queue: t.DeadLetters(), right: "connect", err: e})
	}
	if err != nil {
		return nil
	}
	defer func() { go disconnect(ctx, conn) }() // a broker that blocks publishers does not answer
	defer context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now()) })()
	for _, queue := range t.Queues()[1:] {
		if err := exists(conn, queue); err != nil {
			return fmt.Errorf("amqpidem: Config.Publisher finds no queue for copies: %w", err)
		}
	}
	return t.mayPublish(conn)
}

// majorVersion returns the broker's major version, 3 of "3.10.8"; 4 if the broker does not say.
func majorVersion(conn *amqp.Connection) int {
	version, _ := conn.Properties["version"].(string)
	first, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(first); err == nil {
		return n
	}
	return 4
}

// onChannel calls f on a channel of its own: a refusal closes it.
func onChannel(conn *amqp.Connection, queue string, f func(*amqp.Channel) error) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	err = f(ch)
	var e *amqp.Error
	if errors.As(err, &e) && e.Server && (e.Code == amqp.NotFound || e.Code == amqp.PreconditionFailed || e.Code == amqp.AccessRefused) {
		return &TopologyError{Queue: queue, err: e}
	}
	return err
}

// TopologyError says that a queue is missing, has other arguments, may not be declared, or that copies may not be
// published to it. It wraps the broker's *amqp.Error.
type TopologyError struct {
	// Queue is the queue's name.
	Queue string
	right string // the missing one, if it is known
	err   *amqp.Error
}

// Error names the queue and, in the broker's words, the difference: which argument, what was
// wanted ("received") and what is there ("current").
func (e *TopologyError) Error() string {
	_, reason, found := strings.Cut(e.err.Reason, " - ")
	if !found {
		reason = e.err.Reason
	}
	if e.right != "" {
		reason = "the right to " + e.right + " is missing: " + reason
	}
	return fmt.Sprintf("amqpidem: queue %q: %s", e.Queue, reason)
}

// Unwrap returns the broker's error.
func (e *TopologyError) Unwrap() error { return e.err }
