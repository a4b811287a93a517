package core

// Crowds returns how many crowds wait.
func (e *Engine) Crowds() int {
	e.crowds.mu.Lock()
	defer e.crowds.mu.Unlock()
	return len(e.crowds.all)
}

// Looks returns how many who wait are calling the store.
func (e *Engine) Looks() int { return len(e.looks) }
