package core

// DefaultTokenLifetime is how long a token may be used for the first time, unless TokenConfig.Lifetime says otherwise.
const DefaultTokenLifetime = defaultTokenLifetime

// NewKey makes a key.
func NewKey(raw string) Key { return Key{raw} }

// Waited returns for how many operations callers wait.
func (e *Engine) Waited() int {
	e.waiters.mu.Lock()
	defer e.waiters.mu.Unlock()
	return len(e.waiters.all)
}

// WaiterCalls returns how many waiters are calling the store.
func (e *Engine) WaiterCalls() int { return len(e.waiterCalls) }

// AwaitHandover returns for how many operations callers await a result that is handed over.
func (e *Engine) AwaitHandover() int {
	e.handovers.mu.Lock()
	defer e.handovers.mu.Unlock()
	return len(e.handovers.all)
}
