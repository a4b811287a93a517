//go:build !race

package fiber3idem_test

const raceEnabled = false
