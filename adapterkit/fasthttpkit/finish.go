package fasthttpkit

// FiberContext is what the contexts of all versions of Fiber have.
type FiberContext interface {
	Locals(key any, value ...any) any
	Next() error
}

// Finish is the middleware Finish of the adapters for Fiber. render makes a response of an error.
func Finish(c FiberContext, render func(error)) error {
	if FinisherOf(c) != nil {
		return c.Next()
	}
	f := new(Finisher)
	c.Locals(finisherKey{}, f)
	returned := false
	// The exchanges of Fiber have no errors of delivery.
	defer func() { _ = f.Finish(returned) }()
	defer func() {
		if !isAbandoned(c) {
			c.Locals(finisherKey{}, nil)
		}
	}()

	err := c.Next()
	if f.Deferred() && err != nil {
		render(err)
		f.Err, err = err, nil
	}
	returned = true
	return err
}

// FinisherOf returns what [Finish] has put into c, or nil.
func FinisherOf(c FiberContext) *Finisher {
	if isAbandoned(c) {
		return nil
	}
	f, _ := c.Locals(finisherKey{}).(*Finisher)
	return f
}

type finisherKey struct{}

// isAbandoned reports whether a handler runs on with c, although its timeout has answered. Fiber v2 does not tell.
func isAbandoned(c FiberContext) bool {
	a, ok := c.(interface{ IsAbandoned() bool })
	return ok && a.IsAbandoned()
}
