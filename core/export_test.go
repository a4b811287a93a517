package core

// DefaultTokenLifetime is how long a token may be used for the first time, unless TokenConfig.Lifetime says otherwise.
const DefaultTokenLifetime = defaultTokenLifetime

// Defaults of policies.
const (
	DefaultLease        = defaultLease
	DefaultKeyRetention = defaultKeyRetention
)

// NewKey makes a key.
func NewKey(raw string) Key { return Key{raw} }

// Waited returns for how many operations there are callers that may be answered.
func (e *Engine) Waited() int {
	e.waitsMu.Lock()
	defer e.waitsMu.Unlock()
	return len(e.waits)
}

// Cleanups returns how many releases that follow failed Acquires are under way, or are to be tried once more.
func (e *Engine) Cleanups() int { return len(e.cleanups) }

// WaiterCalls returns how many calls to the store are made for waiters.
func (e *Engine) WaiterCalls() int { return len(e.waiterCalls) }
