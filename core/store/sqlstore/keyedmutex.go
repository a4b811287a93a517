package sqlstore

import (
	"context"
	"sync"
)

// gates let one caller at a time through for each key. The zero gates are open.
type gates struct {
	mu   sync.Mutex
	keys map[string]*gate
}

type gate struct {
	turn    chan struct{} // holds one token, which is the right to pass
	callers int           // that hold the token or wait for it
}

// enter waits for the caller's turn. leave gives it to the next one.
func (g *gates) enter(ctx context.Context, key string) (leave func(), err error) {
	g.mu.Lock()
	this := g.keys[key]
	if this == nil {
		if g.keys == nil {
			g.keys = map[string]*gate{}
		}
		this = &gate{turn: make(chan struct{}, 1)}
		this.turn <- struct{}{}
		g.keys[key] = this
	}
	this.callers++
	g.mu.Unlock()

	gone := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if this.callers--; this.callers == 0 {
			delete(g.keys, key)
		}
	}
	select {
	case <-this.turn:
		return func() { this.turn <- struct{}{}; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}
