package limit

import "time"

// Clock makes l tell the time by now. It is called before l is used.
func (l *Limiter) Clock(now func() time.Time) {
	began := now()
	l.now = func() time.Duration { return now().Sub(began) }
}
