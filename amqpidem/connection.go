package amqpidem

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/core"
)

// dialLimit is how long connecting may take: a frozen broker accepts connections, and does not answer.
var dialLimit = 10 * time.Second

// Dial connects to a broker with a configuration, such as TLS or another heartbeat. Unlike amqp.DialConfig it returns when ctx
// ends, and after at most 10 s. On a connection of amqp.DialConfig alone, a message that is being written when a frozen broker's
// heartbeats time out can't be interrupted.
func Dial(ctx context.Context, url string, c amqp.Config) (*amqp.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	var stop func() bool
	dial := c.Dial
	if dial == nil {
		dial = func(network, addr string) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, addr) }
	}
	c.Dial = func(network, addr string) (net.Conn, error) {
		conn, err := dial(network, addr)
		if err != nil {
			return nil, err
		}
		stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		return socket{conn}, nil
	}
	conn, err := amqp.DialConfig(url, c)
	if stop != nil && !stop() && err == nil { // the connection has been closed under it
		_ = conn.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// socket is closed when nothing can be read from it any more. The client closes it too late: it first waits for
// the message that is being written, and CloseDeadline does nothing by then.
type socket struct{ net.Conn }

func (s socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err != nil {
		_ = s.Close()
	}
	return n, err
}

// disconnect closes conn. It does not wait for the broker's answer when ctx has ended, nor for longer than closeLimit: the
// connection is closed all the same.
func disconnect(ctx context.Context, conn *amqp.Connection) {
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = conn.CloseDeadline(deadline) // which waits longer if there are heartbeats, but no answer
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

// dialer returns the Dial of a configuration.
func dialer(dial func(context.Context, string) (*amqp.Connection, error)) func(context.Context, string) (*amqp.Connection, error) {
	if dial != nil {
		return dial
	}
	return func(ctx context.Context, url string) (*amqp.Connection, error) { return Dial(ctx, url, amqp.Config{}) }
}

// faults collects the faults of a configuration.
type faults struct {
	of   string
	errs []error
}

func (f *faults) addIf(bad bool, field, format string, args ...any) {
	if bad {
		f.errs = append(f.errs, &core.ConfigError{Field: "amqpidem." + f.of + "." + field, Problem: fmt.Sprintf(format, args...)})
	}
}

func (f *faults) url(raw string) {
	_, err := amqp.ParseURI(raw)
	var malformed *url.Error
	if errors.As(err, &malformed) {
		err = malformed.Err // without the URL, which may hold a password
	}
	f.addIf(err != nil, "URL", "%v", err)
}

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// backoff waits before another try; tries is how many have failed in a row. The pause doubles from
// 0.1 to 10 s. Half of it is random, so that clients that lost their connections together do not
// reconnect together. It returns false if ctx ends first.
func backoff(ctx context.Context, tries int) bool {
	pause := min(lastPause, firstPause<<min(tries-1, 10))
	return sleep(ctx, pause/2+rand.N(pause/2))
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
