package core

import (
	"sync"

	"github.com/idem-go/idem/core/adapter"
)

// pending is the [adapter.Pending] of a run.
type pending struct {
	run  *runContext
	x    adapter.Exchange
	echo [2]Field
	once sync.Once

	reported error // by the handler; a middleware further out may have taken it for itself
}

// Finish implements the method of [adapter.Pending].
func (p *pending) Finish(c *adapter.Capture) (err error) {
	p.once.Do(func() {
		run := p.run
		if c == nil {
			run.settlePanic(adapter.Unrendered)
			return
		}
		last := *c
		if last.Err == nil || reported(p.reported) != nil { // a refusal stays one, whatever has become of it
			last.Err = p.reported
		}
		_, err = run.answer(p.x, &p.echo, &last, nil, func(instead *Refusal) error {
			var r Request // that of the httpOperation is back in the pool
			fill(run.values, &r, p.x)
			return p.x.Answer(run.guard.response(run.values, instead, &r))
		})
	})
	return err
}

// Err implements the method of [adapter.Pending].
func (p *pending) Err() error { return p.run.Err() }
