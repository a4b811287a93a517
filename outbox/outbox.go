package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/idem-go/idem/core/store/sqlstore"
)

// Outbox is a table of messages in a database. Its methods are safe for concurrent use, by any
// number of processes. The zero Outbox is not usable; make one with [New].
type Outbox struct {
	db      *sql.DB
	dialect sqlstore.Dialect
	table   string
	maxBody int
	words   *strings.Replacer // replaces what a statement has in braces
	wake    chan struct{}
}

// Config configures an [Outbox]. The zero Config has the defaults.
type Config struct {
	// Table is the name of the table, optionally with a schema ("payments.outbox"). Each part
	// begins with a letter or _ and has up to 50 letters, digits and _. It is not quoted. A second
	// table has the same name with "_lease" appended. The default is "idem_outbox".
	Table string
	// MaxBody is how many bytes the body of a message may have. It should be no more than the broker
	// accepts. Zero means 1 MiB. Negative values are refused.
	MaxBody int
}

// New returns an outbox in db, which the caller still owns and closes. It does not connect: the tables must
// exist when the outbox is first used, see [Outbox.Migrate]. The error names every fault: a nil
// db, an unknown dialect, a bad table name, a negative MaxBody.
func New(db *sql.DB, dialect sqlstore.Dialect, c Config) (*Outbox, error) {
	o := &Outbox{
		db: db, dialect: dialect, wake: make(chan struct{}, 1),
		table: cmp.Or(c.Table, defaultTable), maxBody: cmp.Or(c.MaxBody, 1<<20),
	}
	o.words = words(dialect, o.table)
	faults := []error{checkTable(dialect, o.table)}
	if db == nil {
		faults = append(faults, errors.New("outbox: the database is nil"))
	}
	if o.maxBody < 0 {
		faults = append(faults, fmt.Errorf("outbox: Config.MaxBody is negative: %d", o.maxBody))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return o, nil
}

// Message is a message to a broker. ID, Key, Exchange, Topic, ContentType and the names of Headers
// are UTF-8 without NUL, of at most 255 bytes each.
type Message struct {
	// ID identifies the message, so that consumers recognise duplicates. The database refuses a
	// second message with the ID of one that is in the table. If it is empty, Write sets it as
	// [NewID] does.
	ID string
	// Key orders messages: those with the same key are sent in order. Use, for example, the number of
	// an order. Messages with an empty key have no order.
	Key string
	// Exchange and Topic say where the message goes: exchange and routing key (AMQP), topic (Kafka),
	// or subject (NATS). One of them is required.
	Exchange, Topic string
	// Headers go with the message. Each value has at most Config.MaxBody bytes.
	Headers map[string]string
	// ContentType is the media type of Body. It may be empty.
	ContentType string
	// Body has at most Config.MaxBody bytes.
	Body []byte

	// Position, CreatedAt and Attempt are set for a [Publisher]; Write ignores them. Position is
	// the message's place in the table; it grows, with gaps. CreatedAt is when the message was
	// written, by the clock of the database. Attempt is 1 at first, and increases by one after each
	// failure that seems to be the message's own.
	Position  int64
	CreatedAt time.Time
	Attempt   int
}

// NewID returns a UUID of version 7 (RFC 9562), to set the ID of a message before Write does. It is
// safe for concurrent use.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String() // it fails only if the system's random numbers do
}

// Tx is a transaction of the database: a *sql.Tx, a wrapper of one, or an adapter for another
// library's. Write ignores the result of ExecContext, but not its error.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ErrInvalid is returned by Write if a message is invalid. Nothing was written, and a retry fails in
// the same way.
var ErrInvalid = errors.New("outbox: the message is invalid")

const (
	writeRows  = 50        // how many messages one INSERT has at most
	writeBytes = 256 << 10 // the size from which on it gets no further message: MySQL limits a packet
)

// Write writes messages in the caller's transaction. They are sent if it is committed, and only
// then. The messages of one call keep their order.
//
// If a message is invalid, Write writes nothing, and returns an [ErrInvalid] that names every fault.
// It refuses a *sql.DB, which is not a transaction. Any other error is the database's: roll the
// transaction back.
func (o *Outbox) Write(ctx context.Context, tx Tx, messages ...Message) error {
	if _, is := tx.(*sql.DB); is || tx == nil {
		return fmt.Errorf("outbox: write: a %T is not a transaction", tx)
	}
	var faults []error
	for i := range messages {
		if err := o.check(&messages[i]); err != nil {
			faults = append(faults, fmt.Errorf("%w: message %d: %w", ErrInvalid, i, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	var rows []string
	var args []any
	size := 0
	for i, m := range messages {
		if m.ID == "" {
			m.ID = NewID()
		}
		headers := []byte("{}")
		if m.Headers != nil {
			headers, _ = json.Marshal(m.Headers) // texts can't fail
		}
		if m.Body == nil {
			m.Body = []byte{} // nil would be NULL
		}
		rows = append(rows, insertRow)
		args = append(args, m.ID, m.Key, m.Exchange, m.Topic, string(headers), m.ContentType, m.Body)
		size += len(headers) + len(m.Body)
		if i < len(messages)-1 && len(rows) < writeRows && size+len(messages[i+1].Body) < writeBytes {
			continue
		}
		if _, err := tx.ExecContext(ctx, o.sql(insertSQL, strings.Join(rows, ", ")), args...); err != nil {
			return failure(o.dialect, "write", err)
		}
		rows, args, size = nil, nil, 0
	}
	return nil
}

const maxText = 255 // bytes; also the limit of a short string in AMQP

// check reports what is wrong with a message.
func (o *Outbox) check(m *Message) error {
	var faults []error
	text := func(name, s string, limit int) {
		if len(s) > limit || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			faults = append(faults, fmt.Errorf("%s is not UTF-8 of at most %d bytes without NUL: %.40q", name, limit, s))
		}
	}
	text("ID", m.ID, maxText)
	text("Key", m.Key, maxText)
	text("Exchange", m.Exchange, maxText)
	text("Topic", m.Topic, maxText)
	text("ContentType", m.ContentType, maxText)
	for name, value := range m.Headers {
		text("the name of a header", name, maxText)
		text("the header "+name, value, o.maxBody)
		if name == "" {
			faults = append(faults, errors.New("a header has no name"))
		}
	}
	if m.Exchange == "" && m.Topic == "" {
		faults = append(faults, errors.New("it has no destination: Exchange and Topic are empty"))
	}
	if len(m.Body) > o.maxBody {
		faults = append(faults, fmt.Errorf("the body has %d bytes; MaxBody is %d", len(m.Body), o.maxBody))
	}
	return errors.Join(faults...)
}

// Notify makes the relay in this process look for messages at once. Call it after the transaction
// has been committed. It does not block. Without it, the relay finds them at its next poll.
func (o *Outbox) Notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
