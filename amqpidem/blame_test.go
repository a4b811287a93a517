package amqpidem

import (
	"crypto/rand"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
)

// What the broker blames a message for is final; what it does for reasons of its own is not.
func TestWhoIsToBlame(t *testing.T) {
	server := func(code int, recover bool) error { return &amqp.Error{Code: code, Server: true, Recover: recover} }
	for _, c := range []struct {
		err   error
		sent  way
		final bool
		next  way
	}{
		{nil, alone, false, alone},
		{ErrUnroutable, together, true, together},
		{ErrNacked, alone, false, alone},
		{errLost, separated, false, separated},
		{server(amqp.NotFound, true), together, false, alone}, // it may have been another one's
		{server(amqp.NotFound, true), alone, true, alone},
		{server(amqp.FrameError, false), together, false, separated},
		{server(amqp.FrameError, false), alone, false, separated}, // the connection is that of all
		{server(amqp.FrameError, false), separated, true, separated},
		{server(amqp.ConnectionForced, false), together, false, together},
		{server(amqp.ConnectionForced, false), separated, false, separated},
		{server(amqp.InternalError, false), separated, false, separated},
		{amqp.ErrClosed, together, false, together},
		{amqp.ErrClosed, separated, false, separated},
	} {
		m := new(Message)
		b := batch{refused: map[*Message]error{}, way: c.sent}
		b.account(m, c.err, c.sent)
		assert.Equal(t, c.final, b.refused[m] != nil, "%v", c)
		assert.Equal(t, c.err != nil && !c.final, slices.Contains(b.left, m), "%v", c)
		assert.Equal(t, c.next, b.way, "%v", c)
	}
}

// What is returned is held against the message that was, in whatever order the calls learn of their confirms.
func TestReturnedMessagesWithoutIDs(t *testing.T) {
	conn, err := Dial(t.Context(), backend.AMQP(t), amqp.Config{})
	require.NoError(t, err)
	defer conn.Close()
	l, err := newLink(conn).open(t.Context(), 4)
	require.NoError(t, err)
	queue := "idem-test-" + rand.Text()
	publish := func(body string) sent {
		m := &Message{Key: queue, Publishing: amqp.Publishing{Body: []byte(body)}}
		confirm, err := l.ch.PublishWithDeferredConfirm(m.Exchange, m.Key, true, false, m.Publishing)
		require.NoError(t, err)
		confirm.Wait()
		return sent{m, confirm}
	}
	first := publish("returned")
	_, err = l.ch.QueueDeclare(queue, false, true, true, false, nil)
	require.NoError(t, err)
	second := publish("routed")
	assert.NoError(t, l.outcome(second, false))
	assert.NoError(t, l.outcome(second, true), "what was returned is not its own")
	assert.ErrorIs(t, l.outcome(first, false), ErrUnroutable)
	assert.NoError(t, l.outcome(publish("returned"), false), "now it is routed")
}
