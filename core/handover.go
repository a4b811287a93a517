package core

import (
	"bytes"
	"sync"

	"github.com/idem-go/idem/core/store"
)

// handovers are the callers in this process of operations that leave no record, see [Guard.forgets]. A caller joins
// before it asks the store: so a run that ends hands its result to every caller that the store has told, or will
// tell, that it runs. A caller that joins later belongs to the next run.
type handovers struct {
	mu  sync.Mutex
	all map[Key]*handover
}

// handover is the answer to the callers of one operation.
type handover struct {
	answer
	callers int
}

func (l *handovers) join(key Key) *handover {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.all[key]
	if h == nil {
		h = &handover{answer: answer{ready: make(chan struct{})}}
		if l.all == nil {
			l.all = map[Key]*handover{}
		}
		l.all[key] = h
	}
	h.callers++
	return h
}

func (l *handovers) leave(key Key, h *handover) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.callers--; h.callers == 0 && l.all[key] == h {
		delete(l.all, key)
	}
}

// handOver gives the callers the result of a run.
func (l *handovers) handOver(key Key, result []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.all[key]; h != nil {
		delete(l.all, key)
		h.grant = store.Grant{State: store.Done, Result: bytes.Clone(result)}
		close(h.ready)
	}
}

// awaitHandover makes the caller one of those to whom a run hands its result.
func (w *waiter) awaitHandover() { w.handed = w.guard.engine.handovers.join(w.id.key) }

// stopAwaiting takes that back.
func (w *waiter) stopAwaiting() {
	if w.handed != nil {
		w.guard.engine.handovers.leave(w.id.key, w.handed)
		w.handed = nil
	}
}

// handedOver is closed when a run has handed over its result. It is nil if the caller awaits none.
func (w *waiter) handedOver() <-chan struct{} {
	if w.handed == nil {
		return nil
	}
	return w.handed.ready
}

// take makes a the answer to the caller's next question, which does not reach the store.
func (w *waiter) take(a *answer) {
	w.next, w.answered = a, true
	w.stopWaiting()
}
