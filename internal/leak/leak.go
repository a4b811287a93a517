// Package leak gives goleak the time that libraries take to end their goroutines.
package leak

import "go.uber.org/goleak"

// Patient returns tests for goleak.VerifyTestMain, which by itself waits for less than half a
// second: a client's goroutine that ends soon after its Close may take longer on a busy machine.
// When the tests of m have run, it waits until none but the ignored goroutines are left, or for 10 s.
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
