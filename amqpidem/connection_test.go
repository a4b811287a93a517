package amqpidem

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for tries, longest := range map[int]time.Duration{
			1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond, 8: 10 * time.Second, 1000: 10 * time.Second,
		} {
			different := make(map[time.Duration]bool)
			for range 20 {
				start := time.Now()
				require.True(t, backoff(t.Context(), tries))
				pause := time.Since(start)
				assert.GreaterOrEqual(t, pause, longest/2)
				assert.LessOrEqual(t, pause, longest)
				different[pause] = true
			}
			assert.Greater(t, len(different), 1, "half of it is left to chance")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		assert.False(t, backoff(ctx, 10))
		assert.Equal(t, time.Millisecond, time.Since(start))
	})
}

// A broker that is frozen accepts, and says nothing.
func TestDialEnds(t *testing.T) {
	frozen := must(net.Listen("tcp", "127.0.0.1:0"))
	defer frozen.Close()
	url := "amqp://" + frozen.Addr().String()

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := frozen.Accept(); err == nil {
			defer conn.Close()
			cancel()
			_, _ = conn.Read(make([]byte, 1<<10)) // the greeting
			_, _ = conn.Read(make([]byte, 1))     // until it is closed
		}
	}()
	_, err := Dial(ctx, url, amqp.Config{})
	require.Error(t, err)

	defer func(d time.Duration) { dialLimit = d }(dialLimit)
	dialLimit = 10 * time.Millisecond
	_, err = Dial(t.Context(), url, amqp.Config{})
	require.Error(t, err)
}
