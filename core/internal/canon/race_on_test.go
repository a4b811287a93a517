//go:build race

package canon_test

// raceEnabled says that sync.Pool drops what it is given at random.
const raceEnabled = true
