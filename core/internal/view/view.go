// Package view is what package core shows package operations of an engine, without an exported name in core.
package view

import (
	"context"
	"time"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
)

// View is what operators need of an engine. E is core.Event, which this package can't import.
type View[E any] struct {
	// Store has the records, as the engine sees them.
	Store store.Store
	// Prefix is what stored keys begin with. With "idem:" they are those of all services.
	Prefix string
	// Timeout limits each call of the store. Zero: none.
	Timeout time.Duration
	// Observe tells the engine's observer of an event, to which it adds the stored key.
	Observe func(ctx context.Context, key string, ev E)
	// Encode and EncodeValue make the result of an answer, or of a task's value, for a store. Decode makes an answer of a result.
	Encode      func(*adapter.Response) []byte
	EncodeValue func([]byte) []byte
	Decode      func(result []byte) (adapter.Response, bool)
}

// Embedded has a view that only [Of] finds. A core.Engine embeds it.
type Embedded[E any] struct{ view View[E] }

// Embed returns what an engine embeds to show v.
func Embed[E any](v View[E]) Embedded[E] { return Embedded[E]{v} }

func (e *Embedded[E]) show() *View[E] { return &e.view }

// Of returns the view of an engine.
func Of[E any](engine interface{ show() *View[E] }) *View[E] { return engine.show() }
