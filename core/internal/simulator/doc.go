// Package simulator is a test that plays schedules: one schedule is one order of store calls, answers, losses, crashes and cuts. Two
// or three real engines, each a process, share a store in memory. At each call an explorer chooses what becomes of it: it is
// answered; it is done and the answer is lost; it fails; the process dies before or after it; the process is cut off until its
// lease has passed. Time is that of testing/synctest. A schedule that breaks an invariant of docs/invariants.md fails, and is
// printed as one line, which plays it again:
//
//	go test ./core/internal/simulator -run TestSchedule -schedule=takeover:3=1,7=5
//
// A schedule lists what deviates: 7=5 says that at the eighth choice the sixth possibility is taken; everywhere else it is the
// first. Schedules with few deviations are played first, and all of them, as far as the budget goes. explore_test.go has that,
// world_test.go the processes and their store, checks_test.go the invariants, and scenarios_test.go who does what.
//
// planted_test.go plants faults in the engine, one at a time, and wants each caught.
package simulator
