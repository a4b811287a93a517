package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// link loses requests, and answers. To who has sent a request, both are the same.
type link struct {
	loss float64
	lost atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
}

func newLink(o options) *link {
	return &link{loss: o.loss, random: rand.New(rand.NewPCG(o.seed, 0))}
}

func (l *link) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.random.Float64() < l.loss
	if lost {
		l.lost.Add(1)
	}
	return lost
}

var errLost = errors.New("the link has lost it")

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.loses() {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errLost
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && l.loses() {
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		return nil, errLost
	}
	return answer, err
}

// Unary is a grpc.UnaryClientInterceptor.
func (l *link) Unary(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if l.loses() {
		return status.Error(codes.Unavailable, errLost.Error())
	}
	err := invoke(ctx, method, request, reply, cc, opts...)
	if l.loses() {
		return status.Error(codes.Unavailable, errLost.Error())
	}
	return err
}
