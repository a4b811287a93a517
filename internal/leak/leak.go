// Package leak gives goleak the time that libraries take to end their goroutines.
package leak

import "go.uber.org/goleak"

// VerifyTestMain is goleak's, with more patience: that waits for less than half a second, and a client's
// goroutine that ends soon after its Close may take longer on a busy machine.
func VerifyTestMain(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(Patient(m, options...), options...)
}

// Patient returns tests that, when those of m have run, wait until none but the ignored goroutines are
// left, or for 10 s.
func Patient(m goleak.TestingM, ignored ...goleak.Option) goleak.TestingM {
	return patient{m, ignored}
}

type patient struct {
	goleak.TestingM
	ignored []goleak.Option
}

func (p patient) Run() int {
	code := p.TestingM.Run()
	for range 25 { // each waits as long as goleak does
		if goleak.Find(p.ignored...) == nil {
			break
		}
	}
	return code
}
