package amqpidem

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/core"
)

// dialLimit is how long connecting may take: a frozen broker accepts connections, and does not answer.
var dialLimit = 10 * time.Second

// Dial connects to a broker. Unlike amqp.Dial it returns when ctx ends, and after at most 10 s.
func Dial(ctx context.Context, url string) (*amqp.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	var stop func() bool
	conn, err := amqp.DialConfig(url, amqp.Config{
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
			return conn, nil
		},
	})
	if stop != nil && !stop() && err == nil { // the connection has been closed under it
		_ = conn.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func checkURL(of, raw string) error {
	_, err := amqp.ParseURI(raw)
	var malformed *url.Error
	if errors.As(err, &malformed) {
		err = malformed.Err // without the URL, which may hold a password
	}
	if err != nil {
		return &core.ConfigError{Field: of + ".URL", Problem: err.Error()}
	}
	return nil
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
	timer := time.NewTimer(pause/2 + rand.N(pause/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
